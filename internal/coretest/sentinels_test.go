package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

type uncomparable []error

func (uncomparable) Error() string { return "it can't be compared" }

// TestErrorsKeepTheirIdentity: errors.Is gives the same answer in the process of the load, for a
// caller that waits in another process, and for a later caller there.
func TestErrorsKeepTheirIdentity(t *testing.T) {
	gone, again, other := errors.New("it is gone"), errors.New("try again"), errors.New("try again")
	for name, c := range map[string]struct {
		here, there []error
		err         error
		is, isNot   []error
		text        string
	}{
		"none": {err: gone, isNot: []error{gone}},
		"same list": {
			here: []error{gone, again}, there: []error{gone, again}, err: gone, is: []error{gone},
			isNot: []error{again},
		},
		"wrapped, both": {
			here: []error{gone, again}, there: []error{gone, again},
			err: fmt.Errorf("key: %w, %w", again, gone), is: []error{gone, again},
		},
		"longer list here": {
			here: []error{gone, again}, there: []error{gone}, err: again,
			isNot: []error{gone, again},
		},
		"longer list there": {
			here: []error{gone}, there: []error{gone, again}, err: gone, is: []error{gone},
			isNot: []error{again},
		},
		"other list there": {
			here: []error{gone}, there: []error{again}, err: gone, isNot: []error{gone, again},
		},
		"other order there": {
			here: []error{gone, again}, there: []error{again, gone}, err: gone,
			isNot: []error{gone, again},
		},
		"one text, two errors": {
			here: []error{again, other}, there: []error{again, other}, err: other,
			is: []error{other}, isNot: []error{again},
		},
		"deadline": {
			err: fmt.Errorf("load: %w", context.DeadlineExceeded),
			is:  []error{context.DeadlineExceeded},
		},
		"cancelled": {err: context.Canceled, isNot: []error{context.Canceled}},
		"cancelled is not to cross": {
			here: []error{io.EOF}, there: []error{io.EOF}, err: context.Canceled,
			isNot: []error{io.EOF, context.Canceled},
		},
		"zero byte": {
			here: []error{gone}, there: []error{gone}, err: errors.New("a\x00b"),
			isNot: []error{gone},
		},
		"looks like marks": {
			here: []error{gone}, there: []error{gone}, err: errors.New("a\x0001d95e4c4b"),
			isNot: []error{gone},
		},
		"zero byte and marks": {
			here: []error{gone}, there: []error{gone}, err: fmt.Errorf("a\x00b: %w", gone),
			is: []error{gone},
		},
		"long text": {
			here: []error{gone}, there: []error{gone},
			err: fmt.Errorf("%s: %w", strings.Repeat("x", 300), gone), is: []error{gone},
			text: strings.Repeat("x", 256),
		},
		"in a panic": {
			here: []error{gone}, there: []error{gone}, err: &cacheguard.PanicError{Value: gone},
			is: []error{gone}, text: "load panicked: it is gone",
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			if c.text == "" {
				c.text = c.err.Error()
			}
			store := memstore.New(memstore.Options{})
			here := openOn(t, store,
				cacheguard.Options[string]{Errors: c.here, ErrorTTL: time.Second})
			there := openOn(t, store, cacheguard.Options[string]{Errors: c.there})
			o := newScriptedOrigin[string](t)
			leader := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			waiter := getting(t.Context(), t, there, "k", o.load)
			waiter.waits()
			load.fails(c.err)
			leader.gives("", c.err)
			_, waited := waiter.now()
			_, later := getting(t.Context(), t, there, "k", o.load).now()
			for who, err := range map[string]error{"who waited": waited, "who asked later": later} {
				isLoadError(t, err, c.text)
				for _, want := range c.is {
					if !errors.Is(err, want) {
						t.Errorf("%s got %q, which is no %q", who, err, want)
					}
				}
				for _, not := range c.isNot {
					if errors.Is(err, not) {
						t.Errorf("%s got %q, which is %q", who, err, not)
					}
				}
			}
		})
	}
}

// TestWrongErrors are named.
func TestWrongErrors(t *testing.T) {
	many := make([]error, 65)
	for i := range many {
		many[i] = fmt.Errorf("error %d", i)
	}
	for what, all := range map[string][]error{
		"Errors[1] is nil":         {io.EOF, nil},
		"Errors[0] is ErrNotFound": {fmt.Errorf("no: %w", cacheguard.ErrNotFound)},
		"can't be compared":        {uncomparable{}},
		"Errors has 65 errors":     many,
	} {
		_, err := cacheguard.New(memstore.New(memstore.Options{}),
			cacheguard.Options[string]{Name: "n", Errors: all})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("New: %v; want %q in it", err, what)
		}
	}
}

// TestMarksOfNobody are a part of the text.
func TestMarksOfNobody(t *testing.T) {
	for _, text := range []string{
		"a\x00", "a\x00zz", "a\x0001", "a\x0001d95e4c4bff", "\x00", "a\x00b\x00",
	} {
		inBubble(t, fmt.Sprintf("%q", text), func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{})
			k := cacheguard.Key{Cache: "behave", Key: "k"}
			answer, err := store.Lease(t.Context(), k,
				cacheguard.LeaseAsk{Token: cacheguard.ID{7}, TTL: time.Minute})
			if err != nil || answer.State != cacheguard.LeaseGranted {
				t.Fatal(answer, err)
			}
			failed := cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: text}
			if err := store.Conclude(t.Context(), k, answer.Grant, failed, time.Minute,
				time.Minute); err != nil {
				t.Fatal(err)
			}
			_, err = getting(t.Context(), t, c, "k", returning("unexpected")).now()
			isLoadError(t, err, strings.TrimSuffix(text, "\x00")) // which is an end without marks
		})
	}
}
