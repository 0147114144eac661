package desk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// led returns a flight that this goroutine leads and whose work goes on elsewhere, and whether that
// was told that all have left.
func led(t *testing.T) (f *flight.Flight[string], abandoned *bool) {
	t.Helper()
	f, abandoned = flight.Solo[string](), new(bool)
	f.DetachTo(func() { *abandoned = true }, func() {})
	return f, abandoned
}

// A waiting caller runs the job that the load brings, and gets the load's result, with or without a
// job.
func TestWork(t *testing.T) {
	for _, job := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, done := Open(t.Context()), false
			f, _ := led(t)
			go func() {
				if job && !d.Do(func() { done = true }) {
					t.Error("nobody took the job")
				}
				f.Land("result")
			}()
			if got, err := Work(t.Context(), d, f); err != nil || *got != "result" || done != job {
				t.Errorf("got %v, %v; job done: %v, want %v", got, err, done, job)
			}
		})
	}
}

// During a job only the end of the client's context matters, not the end of the call's context.
// After a job that has called Leave, the caller doesn't wait for the load.
func TestWorkLeaves(t *testing.T) {
	for name, leave := range map[string]func(d *Desk, call, client func()){
		"client":      func(_ *Desk, _, client func()) { client() },
		"job":         func(d *Desk, _, _ func()) { d.Leave() },
		"call's ctx":  func(_ *Desk, call, _ func()) { call() },
		"job, panics": func(d *Desk, _, _ func()) { d.Leave(); panic("a handler's") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, call := context.WithCancel(t.Context())
				client, gone := context.WithCancel(t.Context())
				defer call()
				defer gone()
				d := Open(client)
				f, abandoned := led(t)
				stays := name == "call's ctx"
				go func() {
					d.Do(func() {
						leave(d, call, gone)
						synctest.Wait()
					})
					if stays {
						f.Land("result")
					}
				}()
				panicked := true
				func() {
					defer func() { _ = recover() }()
					got, err := Work(ctx, d, f)
					if panicked = false; stays != (err == nil && *got == "result") ||
						!stays && !errors.Is(err, context.Canceled) {
						t.Errorf("got %v, %v", got, err)
					}
				}()
				if panicked != (name == "job, panics") {
					t.Errorf("panicked: %v", panicked)
				}
				if *abandoned == stays {
					t.Errorf("the load was told that all have left: %v", *abandoned)
				}
			})
		})
	}
}

// Who waits for another's load may have what it came for by a word of that, and stays a member
// until then.
func TestHear(t *testing.T) {
	for name, c := range map[string]struct {
		word any
		err  error
	}{
		"what it came for": {"word", context.Canceled}, "something else": {"another", nil},
		"nothing": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := Open(t.Context())
				d.Caller = only{"word"}
				f, abandoned := led(t)
				go func() {
					if c.word != nil {
						f.Announce(c.word)
						synctest.Wait()
					}
					f.Land("result")
				}()
				got, err := Hear(t.Context(), d, f)
				if !errors.Is(err, c.err) || err == nil && *got != "result" {
					t.Errorf("got %v, %v", got, err)
				}
				if *abandoned != (c.err != nil) {
					t.Errorf("the load was told that all have left: %v", *abandoned)
				}
			})
		})
	}
}
