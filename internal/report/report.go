// Package report writes the log lines of this module. Each line names the event, its cause in
// words, its consequence for callers, and the part of docs/operations.md with more details. No line
// has a key. Instead, an error names the server and the cause. Observers that show keys, or hashes
// of keys, get their texts from QuoteKey and HashKey.
package report

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Page is the document that has a heading for each Line. [Line.See] is the anchor of that heading.
const Page = "docs/operations.md"

// Line is a line of the log. Its fields are constant, and only the arguments of Log differ. A test
// in internal/alltest checks that every Line in the source is on the page.
type Line struct {
	Level slog.Level
	Text  string // the event, after the name of the package
	Means string // the consequence for callers; empty if it is clear
	See   string // heading on the page
}

// Log writes the line. If an argument is an error, Log writes the error's [Text]. If the error
// knows the server and the cause, Log writes them before the text.
func (l Line) Log(ctx context.Context, to *slog.Logger, args ...any) { l.log(ctx, to, args) }

func (l Line) log(ctx context.Context, to *slog.Logger, args []any) {
	if !to.Enabled(ctx, l.Level) {
		return
	}
	var pcs [1]uintptr
	runtime.Callers(3, pcs[:]) // so that the line's source is the caller of Log
	r := slog.NewRecord(time.Now(), l.Level, l.Text, pcs[0])
	for i := 0; i+1 < len(args); i += 2 {
		err, isError := args[i+1].(error)
		if !isError {
			r.Add(args[i], args[i+1])
			continue
		}
		if server, cause := Where(err); cause != "" {
			r.Add("server", server, "cause", cause)
			if by := asUser(nil); errors.As(err, &by) && by.RedisUser() != "" {
				r.Add("user", by.RedisUser())
			}
		}
		r.Add(args[i], Text(err))
	}
	if l.Means != "" {
		r.Add("means", l.Means)
	}
	r.Add("see", Page+"#"+l.See)
	_ = to.Handler().Handle(ctx, r)
}

// located is an error that names its server and its cause.
type located interface {
	error
	Where() (server, cause string)
}

// asUser is an error that names the Redis user to which it applies.
type asUser interface {
	error
	RedisUser() string
}

// Where returns the server and the cause of an error, if the error names them.
func Where(err error) (server, cause string) {
	if known := located(nil); errors.As(err, &known) {
		return known.Where()
	}
	return "", ""
}

// lacking is an error that names the right that the server's user lacks.
type lacking interface {
	error
	Lacks() string
}

// Lacks returns the right that is missing, if the error names one.
func Lacks(err error) string {
	if known := lacking(nil); errors.As(err, &known) {
		return known.Lacks()
	}
	return ""
}

// Text returns an error's text without the wrappers of the callers in this module, which may
// contain the name of a key. If an error in the chain names its server and its cause, Text returns
// the text of that error. Otherwise it returns the texts at the bottom of the chain.
func Text(err error) string {
	if known := located(nil); errors.As(err, &known) {
		return known.Error()
	}
	return strings.Join(bottom(nil, err), "; ")
}

// bottom appends the texts of the errors that wrap no other error, each once. It removes only
// wrappers of packages fmt and errors. An error of another type, such as a failed dial, has
// information that the wrapped error doesn't have.
func bottom(found []string, err error) []string {
	switch wraps := err.(type) {
	case interface{ Unwrap() []error }:
		for _, below := range wraps.Unwrap() {
			found = bottom(found, below)
		}
		return found
	case interface{ Unwrap() error }:
		if below := wraps.Unwrap(); below != nil && isPlain(err) {
			return bottom(found, below)
		}
	}
	if text := err.Error(); !slices.Contains(found, text) {
		found = append(found, text)
	}
	return found
}

// isPlain reports whether package fmt has wrapped an error.
func isPlain(err error) bool {
	return strings.HasPrefix(reflect.TypeOf(err).String(), "*fmt.")
}
