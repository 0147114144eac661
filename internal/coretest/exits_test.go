package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var errOrigin = errors.New("the origin is down")

// poison is a value that can't be encoded or decoded.
const poison = "poison"

// poisonous is a codec that panics when it meets poison, on its way in or out.
type poisonous struct{ in, out bool }

func (p poisonous) Append(dst []byte, v string) ([]byte, error) {
	if p.in && v == poison {
		panic("Append: " + v)
	}
	return append(dst, v...), nil
}

func (p poisonous) Decode(src []byte) (string, error) {
	if p.out && string(src) == poison {
		panic("Decode: " + string(src))
	}
	return string(src), nil
}

// exits are the ways out of a load, and what callers see of them: an error in the chain of what
// they get, and its text in other processes.
var exits = map[string]struct {
	opts     cacheguard.Options[string]
	stubborn bool
	end      func() (string, error) // nil: it never ends
	value    string
	err      error
	panics   bool
	text     string
}{
	"value": {end: func() (string, error) { return "v", nil }, value: "v"},
	"not found": {
		end: func() (string, error) {
			return "", cacheguard.ErrNotFound
		}, err: cacheguard.ErrNotFound,
	},
	"error": {
		end: func() (string, error) {
			return "ignored", errOrigin
		}, err: errOrigin, text: "the origin is down",
	},
	"panic": {
		end: func() (string, error) { panic("value") }, panics: true, text: "load panicked: value",
	},
	"panic error": {
		end: func() (string, error) {
			panic(errOrigin)
		}, panics: true, err: errOrigin, text: "load panicked: the origin is down",
	},
	"panic error that is nil": {
		end: func() (string, error) {
			panic((*causedError)(nil))
		}, panics: true, text: "load panicked: <nil>",
	},
	"panic nil": {
		end: func() (string, error) {
			panic(nil)
		}, panics: true, text: "load panicked: panic called with nil argument",
	},
	"nested panic": {end: panicInPanic, panics: true, text: "load panicked: second"},
	"Goexit": {
		end: func() (string, error) { runtime.Goexit(); return "", nil }, text: "runtime.Goexit",
	},
	"Append panics": {
		opts: cacheguard.Options[string]{Codec: poisonous{in: true}},
		end: func() (string, error) {
			return poison, nil
		}, panics: true, text: "load panicked: Append: poison",
	},
	"Empty panics": {
		opts: cacheguard.Options[string]{Empty: func(v string) bool { panic("Empty: " + v) }},
		end: func() (string, error) {
			return "v", nil
		}, panics: true, text: "load panicked: Empty: v",
	},
	"Empty exits": {
		opts: cacheguard.Options[string]{Empty: func(v string) bool {
			runtime.Goexit()
			return false
		}},
		end: func() (string, error) { return "v", nil }, text: "runtime.Goexit",
	},
	"ErrorText panics": {
		opts: cacheguard.Options[string]{ErrorText: func(err error) string { panic(err) }},
		end: func() (string, error) {
			return "", errOrigin
		}, err: errOrigin, text: "load failed, and so did ErrorText",
	},
	"Observer panics": {
		opts: cacheguard.Options[string]{Observer: observing(func(cacheguard.Event) {
			panic("Observer")
		})},
		end: func() (string, error) { return "v", nil }, value: "v",
	},
	"Observer panics at an error": {
		opts: cacheguard.Options[string]{Observer: observing(func(cacheguard.Event) {
			panic("Observer")
		})},
		end: func() (string, error) {
			return "", errOrigin
		}, err: errOrigin, text: "the origin is down",
	},
	"timeout": {err: context.DeadlineExceeded, text: "load took longer than LoadTimeout"},
	"stubborn timeout": {
		stubborn: true, err: context.DeadlineExceeded, text: "load took longer than LoadTimeout",
	},
}

// causedError is an error whose methods panic if it is nil.
type causedError struct{ cause error }

func (e *causedError) Error() string { return e.cause.Error() }
func (e *causedError) Unwrap() error { return e.cause }

func panicInPanic() (string, error) {
	defer func() { panic("second") }()
	panic("first")
}

type observing func(cacheguard.Event)

func (o observing) Observe(_ context.Context, e cacheguard.Event) { o(e) }

// TestEveryExit: every end of a load is told to all waiting callers, in this process and in another
// one. It leaves no lease, no taken slot and no goroutine.
func TestEveryExit(t *testing.T) {
	for name, exit := range exits {
		inBubble(t, name, func(t *testing.T) {
			store := newTampered()
			opts := exit.opts
			opts.MaxLoads, opts.LoadTimeout = 2, 10*time.Second
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			o := newScriptedOrigin[string](t)
			fn := o.load
			if exit.stubborn {
				fn = o.stubborn
			}
			leader := getting(t.Context(), t, here, "k", fn)
			load := o.next()
			joiner, waiter := getting(t.Context(), t, here, "k", fn),
				getting(t.Context(), t, there, "k", fn)
			joiner.waits()
			waiter.waits()
			if exit.end != nil {
				load.ends(exit.end)
			} else {
				leader.later()
			}

			for _, c := range []*begun[string]{leader, joiner} {
				v, err := c.now()
				checkLocal(t, v, err, exit.value, exit.err, exit.panics, exit.text)
			}
			v, err := waiter.now()
			switch failed := (*cacheguard.LoadError)(nil); {
			case exit.text == "":
				if v != exit.value || !errors.Is(err, exit.err) {
					t.Errorf("the other process got %q, %v; want %q, %v", v, err, exit.value,
						exit.err)
				}
			case !errors.As(err, &failed) || failed.Key != "k" ||
				!strings.Contains(failed.Text, exit.text):
				t.Errorf("the other process got %q, %v; want a LoadError that says %q", v, err,
					exit.text)
			case strings.Contains(failed.Text, "goroutine"):
				t.Errorf("a stack has left the process: %s", failed.Text)
			}
			if !leaseFree(t, store, "k") {
				t.Error("the lease is held")
			}
			if exit.stubborn {
				load.fails(errOrigin)
			}
			slotsAreFree(t, here, 2)
			slotsAreFree(t, there, 2)
			o.loads(1)
		})
	}
}

// checkLocal tests the result of a caller in the process of the load.
func checkLocal(
	t *testing.T, v string, err error, wantValue string, want error, panics bool, text string,
) {
	t.Helper()
	var p *cacheguard.PanicError
	switch {
	case v != wantValue:
		t.Errorf("a caller got %q; want %q", v, wantValue)
	case want == nil && text == "" && err != nil, want != nil && !errors.Is(err, want):
		t.Errorf("a caller got the error %v; want %v", err, want)
	case errors.As(err, &p) != panics:
		t.Errorf("a caller got the error %v; want a PanicError: %v", err, panics)
	case panics && !strings.Contains(string(p.Stack), "coretest_test."):
		t.Errorf("the stack is not that of the panic: %s", p.Stack)
	case !panics && want == nil && text != "" && !strings.Contains(fmt.Sprint(err), text):
		t.Errorf("a caller got the error %v; want one that says %q", err, text)
	}
}

// slotsAreFree tests that n loads can run at the same time. They can only if no other load has a
// slot.
func slotsAreFree(t *testing.T, c *cacheguard.Cache[string], n int) {
	t.Helper()
	o := newScriptedOrigin[string](t)
	ctx, leave := context.WithCancel(t.Context())
	var calls []*begun[string]
	for i := range n {
		calls = append(calls, getting(ctx, t, c, fmt.Sprint("slot ", i), o.load))
	}
	o.loads(n)
	leave()
	for _, call := range calls {
		call.gives("", context.Canceled)
	}
}

// TestPanicError has all that is needed to find the cause.
func TestPanicError(t *testing.T) {
	inBubble(t, "bubble", func(t *testing.T) {
		c := openOn(t, newTampered(), cacheguard.Options[string]{})
		_, err := c.Get(t.Context(), "k", func(context.Context) (string, error) {
			return theCulprit()
		})
		var p *cacheguard.PanicError
		var typed *typedError
		if !errors.As(err, &p) || !errors.As(err, &typed) || !errors.Is(err, errOrigin) {
			t.Fatalf("Get: %v; want a PanicError that wraps what was thrown", err)
		}
		if p.Value != error(typed) || errors.Unwrap(p) != error(typed) {
			t.Errorf("its value is %v, its cause %v", p.Value, errors.Unwrap(p))
		}
		for what, s := range map[string]string{"stack": string(p.Stack), "text": p.Error()} {
			if !strings.Contains(s, "theCulprit") {
				t.Errorf("its %s doesn't say where it happened: %s", what, s)
			}
		}
		if errors.Unwrap(&cacheguard.PanicError{Value: "no error"}) != nil {
			t.Error("what is no error is unwrapped")
		}
	})
}

// TestPanicForMany: a call for many keys looks for ErrNotFound in the errors of its load.
func TestPanicForMany(t *testing.T) {
	inBubble(t, "bubble", func(t *testing.T) {
		c := openOn(t, newTampered(), cacheguard.Options[string]{})
		_, err := c.GetMany(t.Context(), []string{"k"}, func(
			context.Context, []string,
		) (map[string]string, error) {
			panic((*causedError)(nil))
		})
		var p *cacheguard.PanicError
		if !errors.As(err, &p) || p.Value != (*causedError)(nil) {
			t.Errorf("GetMany: %v; want a PanicError with what was thrown", err)
		}
	})
}

// TestKeyErrorWithoutMethods: an error of one key whose methods panic is the error of this key
// only.
func TestKeyErrorWithoutMethods(t *testing.T) {
	inBubble(t, "bubble", func(t *testing.T) {
		c := openOn(t, newTampered(), cacheguard.Options[string]{})
		got, _ := c.GetMany(t.Context(), []string{"a", "b"}, func(
			context.Context, []string,
		) (map[string]string, error) {
			return map[string]string{"a": "v"}, cacheguard.KeyErrors{"b": (*causedError)(nil)}
		})
		if got["a"] != "v" {
			t.Errorf("the other key: %q", got["a"])
		}
	})
}

type typedError struct{}

func (*typedError) Error() string { return "typed" }
func (*typedError) Unwrap() error { return errOrigin }

func theCulprit() (string, error) { panic(&typedError{}) }

// TestLastWordOfTheLoad: a load is told to stop when it has just finished.
func TestLastWordOfTheLoad(t *testing.T) {
	inBubble(t, "bubble", func(t *testing.T) {
		c := openOn(t, newTampered(), cacheguard.Options[string]{LoadTimeout: time.Second})
		got, err := c.Get(t.Context(), "k", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "v", nil
		})
		if got != "v" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get: %q, %v; want the value, or the timeout", got, err)
		}
		if _, err := c.Get(t.Context(), "k", returning("w")); err != nil &&
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the next Get: %v", err)
		}
	})
}

// TestDecodePanics: bytes that can't be decoded are not a value, from every source.
func TestDecodePanics(t *testing.T) {
	inBubble(t, "stored", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{Codec: poisonous{out: true}})
		if err := c.Set(t.Context(), "k", poison); err != nil {
			t.Fatal(err)
		}
		if r, err := c.Peek(t.Context(), "k"); err != nil || r.Status != cacheguard.StatusMiss {
			t.Errorf("Peek: %+v, %v; want a miss", r, err)
		}
		getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
		getting(t.Context(), t, c, "k", failingWith[string](errOrigin)).gives("v", nil)
	})
	inBubble(t, "told", func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{Codec: poisonous{out: true}}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiter := getting(t.Context(), t, there, "k", o.load)
		waiter.waits()
		load.gives(poison)
		leader.gives(poison, nil)
		o.next().gives("v")
		waiter.gives("v", nil)
		if !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
	})
	inBubble(t, "carried along", func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{Codec: poisonous{out: true}}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[cacheguard.Entry[string]](t)
		leader := gettingEntry(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiter := gettingEntry(t.Context(), t, there, "k", o.load)
		waiter.waits()
		load.gives(cacheguard.Entry[string]{Value: poison, NoStore: true})
		if r, err := leader.now(); r.Value != poison || err != nil {
			t.Errorf("the leader got %q, %v", r.Value, err)
		}
		o.next().gives(cacheguard.Entry[string]{Value: "v"})
		if r, err := waiter.now(); r.Value != "v" || err != nil {
			t.Errorf("the waiter got %q, %v", r.Value, err)
		}
	})
}
