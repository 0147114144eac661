package frame

import (
	"encoding/hex"
	"strings"
)

// MarkSize is the size of one of an error's marks.
const MarkSize = 1 + 4

// Unmark takes the text of a load's error, as it stands in the store, apart: into what the error
// says, and the marks of the sentinels that it wraps. They stand behind its text in hexadecimal,
// after a zero byte. Marks that nobody has made are a part of the text.
func Unmark(marked string) (text string, marks []byte) {
	at := strings.LastIndexByte(marked, 0)
	if at < 0 {
		return marked, nil
	}
	marks, err := hex.DecodeString(marked[at+1:])
	if err != nil || len(marks)%MarkSize != 0 {
		return marked, nil
	}
	return marked[:at], marks
}
