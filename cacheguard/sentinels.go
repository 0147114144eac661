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

// sentinels are the errors that are themselves in every process: what a load's error wraps of them
// stands behind its text in the outcome, after a zero byte, each as its place here and a hash of
// its own text. A release with other sentinels recognises those that it has in the same place with
// the same text, and no others.
type sentinels []error

const maxSentinels = 64

// sentinelsOf are the options' behind those that every cache has. What a load's end by its deadline
// is in its own process it is in others; context.Canceled would say there that the caller has given
// up.
func sentinelsOf(own []error) sentinels {
	return append(sentinels{context.DeadlineExceeded}, own...)
}

// wrongSentinels adds what is wrong with those of the options.
func wrongSentinels(own []error, bad *complaints) {
	if len(own) > maxSentinels {
		bad.add("Errors has %d errors, at most %d are allowed", len(own), maxSentinels)
	}
	for i, err := range own {
		switch {
		case err == nil:
			bad.add("Errors[%d] is nil", i)
		case !reflect.TypeOf(err).Comparable():
			bad.add("Errors[%d] is a %T, which can't be compared: no error would be it", i, err)
		case errors.Is(err, ErrNotFound):
			bad.add("Errors[%d] is ErrNotFound, which every process knows as a result", i)
		}
	}
}

// marked is a load's text with the sentinels that its error wraps.
func (s sentinels) marked(text string, err error) string {
	var marks []byte
	for i, one := range s {
		if errors.Is(err, one) {
			marks = append(append(marks, byte(i)), sumOf(one)...)
		}
	}
	if marks == nil && !strings.Contains(text, "\x00") {
		return text
	}
	return text + "\x00" + hex.EncodeToString(marks)
}

// parse takes a marked text apart. Marks that nobody has made are a part of the text.
func (s sentinels) parse(marked string) (text string, is []error) {
	text, marks := frame.Unmark(marked)
	for ; len(marks) > 0; marks = marks[frame.MarkSize:] {
		if i := int(marks[0]); i < len(s) && string(sumOf(s[i])) == string(marks[1:frame.MarkSize]) {
			is = append(is, s[i])
		}
	}
	return text, is
}

func sumOf(err error) []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", err)
	return h.Sum(nil)
}
