package cacheguard

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// sentinels are the errors that every process recognises. If a load's error wraps some of them, the
// outcome has marks after the error's text and a zero byte. The mark of a sentinel is its place in
// this list and a hash of its text. Because of the hash, a release with another list recognises
// only those sentinels that its list has in the same place with the same text.
type sentinels []error

const maxSentinels = 64

// sentinelsOf returns the sentinels that every cache has, followed by the sentinels of the options.
// context.DeadlineExceeded is always a sentinel, so that a load's time-out is a time-out in every
// process. context.Canceled is never a sentinel, because other callers would take it for the end of
// their own context.
func sentinelsOf(own []error) sentinels {
	return append(sentinels{context.DeadlineExceeded}, own...)
}

// wrongSentinels adds the complaints about the sentinels of the options.
func wrongSentinels(own []error, bad *complaints) {
	if len(own) > maxSentinels {
		bad.add("Errors has %d errors, at most %d are allowed", len(own), maxSentinels)
	}
	for i, err := range own {
		switch {
		case err == nil:
			bad.add("Errors[%d] is nil", i)
		case !reflect.TypeOf(err).Comparable():
			bad.add("Errors[%d] is a %T, which can't be compared, so errors.Is would never find it",
				i, err)
		case errors.Is(err, ErrNotFound):
			bad.add("Errors[%d] is ErrNotFound, which every process knows as a result", i)
		}
	}
}

// marked returns the text of a load's error, followed by the marks of the sentinels that the error
// wraps.
func (s sentinels) marked(text string, err error) string {
	var marks []byte
	for i, one := range s {
		if wraps(err, one) {
			marks = append(append(marks, byte(i)), sumOf(one)...)
		}
	}
	if marks == nil && !strings.Contains(text, "\x00") {
		return text
	}
	return text + "\x00" + hex.EncodeToString(marks)
}

// parse splits a marked text. Bytes that don't have the form of marks are a part of the text.
func (s sentinels) parse(marked string) (text string, is []error) {
	text, marks := frame.Unmark(marked)
	for ; len(marks) > 0; marks = marks[frame.MarkSize:] {
		if i := int(marks[0]); i < len(s) &&
			string(sumOf(s[i])) == string(marks[1:frame.MarkSize]) {
			is = append(is, s[i])
		}
	}
	return text, is
}

// sumOf returns the hash of an error's text.
func sumOf(err error) []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", err)
	return h.Sum(nil)
}
