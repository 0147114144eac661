// Package report writes the log lines of this module. Each line says what happened, its cause in
// words, what it means for callers, and which part of docs/operations.md has more. No line has a
// key: an error names the server and the cause.
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

// Page is the page whose headings [Line.See] names.
const Page = "docs/operations.md"

// Line is a line of the log. All of it is constant: only the arguments of Log differ. A test of
// package cacheguard checks that every Line in the source is on the page.
type Line struct {
	Level slog.Level
	Text  string // what happened, after the name of the package
	Means string // what it means for callers; empty if that is clear
	See   string // heading on the page
}

// Log writes the line. For an argument that is an error it writes the error's [Text], and before it
// the server and the cause if the error knows them.
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

// located is an error that knows its server and its cause.
type located interface {
	error
	Where() (server, cause string)
}

// asUser is an error that knows which Redis user it is about.
type asUser interface {
	error
	RedisUser() string
}

// Where returns the server that an error is about, and the cause, if the error knows them.
func Where(err error) (server, cause string) {
	if known := located(nil); errors.As(err, &known) {
		return known.Where()
	}
	return "", ""
}

// Text returns an error's text without what the callers in this module have wrapped around it, such
// as the name of a key: the text of the error that knows its server and its cause, or otherwise the
// texts at the bottom of the chain.
func Text(err error) string {
	if known := located(nil); errors.As(err, &known) {
		return known.Error()
	}
	return strings.Join(bottom(nil, err), "; ")
}

// bottom appends the texts of the errors that wrap no other error, each once. It removes only
// wrappers of packages fmt and errors: a type of its own, such as that of a failed dial, says
// something that the wrapped error doesn't.
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

// isPlain reports whether an error is one that package fmt has wrapped.
func isPlain(err error) bool {
	return strings.HasPrefix(reflect.TypeOf(err).String(), "*fmt.")
}
