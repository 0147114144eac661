package frame

import (
	"encoding/hex"
	"strings"
)

// MarkSize is the size of a mark, which stands for a sentinel that an error wraps.
const MarkSize = 1 + 4

// Unmark splits the stored text of a load's error into the text of the error and the marks of the
// sentinels that it wraps. The marks follow the text in hexadecimal, after a zero byte. If the
// bytes after the zero byte are not a valid list of marks, they are a part of the text.
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
