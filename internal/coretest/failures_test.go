package coretest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// isLoadError tests the error that a process gets for a load that failed in another process.
func isLoadError(t *testing.T, err error, text string) {
	t.Helper()
	var failed *cacheguard.LoadError
	if !errors.As(err, &failed) || failed.Key != "k" || failed.Text != text {
		t.Errorf("the other process got %v; want a LoadError that says %q", err, text)
	}
	if errors.Is(err, errOrigin) {
		t.Error("the error itself came out of another process")
	}
}

// TestErrorTTL: waiting callers, and for a while new callers, get the error of a failed load, in
// the whole fleet. The origin is asked once.
func TestErrorTTL(t *testing.T) {
	for name, ttl := range map[string]time.Duration{
		"default": 0, "2s": 2 * time.Second, "above the lease": 10 * time.Second,
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{ErrorTTL: ttl}
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			if ttl == 0 {
				ttl = time.Second
			}
			o := newScriptedOrigin[string](t)
			leader := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			joiner, waiter := getting(t.Context(), t, here, "k", o.load),
				getting(t.Context(), t, there, "k", o.load)
			joiner.waits()
			waiter.waits()
			load.fails(errOrigin)
			leader.gives("", errOrigin)
			joiner.gives("", errOrigin)
			_, err := waiter.now()
			isLoadError(t, err, errOrigin.Error())
			for _, after := range []time.Duration{0, ttl - time.Millisecond} {
				<-time.After(after)
				getting(t.Context(), t, here, "k", o.load).gives("", errOrigin)
				beginCall(t, func() (string, error) {
					return here.Refresh(t.Context(), "k", o.load)
				}).gives("", errOrigin)
				_, err := getting(t.Context(), t, there, "k", o.load).now()
				isLoadError(t, err, errOrigin.Error())
			}
			o.loads(1)
			<-time.After(time.Millisecond)
			newcomer := getting(t.Context(), t, there, "k", o.load)
			o.next().gives("v")
			newcomer.gives("v", nil)
			getting(t.Context(), t, here, "k", o.load).gives("v", nil)
		})
	}
}

// TestNegativeErrorTTL: only callers that waited get the error of a failed load. They don't repeat
// the load one after another.
func TestNegativeErrorTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{ErrorTTL: -1}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiters := []*begun[string]{
			getting(t.Context(), t, there, "k", o.load),
			getting(t.Context(), t, there, "k", o.load),
		}
		waiters[1].waits()
		load.fails(errOrigin)
		leader.gives("", errOrigin)
		for _, waiter := range waiters {
			_, err := waiter.now()
			isLoadError(t, err, errOrigin.Error())
		}
		o.loads(1)
		newcomer := getting(t.Context(), t, there, "k", o.load)
		o.next().gives("v")
		newcomer.gives("v", nil)
	})
}

// TestWaitersOfAFailureWhoMissedTheMessage: waiting processes that missed the message find the
// record of the failure, and the origin is not asked again.
func TestWaitersOfAFailureWhoMissedTheMessage(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"shared": time.Second, "not shared": -1} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{ErrorTTL: ttl}
			here, deaf := openOn(t, store, opts), openOn(t, &silent{store}, opts)
			o := newScriptedOrigin[string](t)
			leader := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			waiter := getting(t.Context(), t, deaf, "k", o.load)
			waiter.waits()
			load.fails(errOrigin)
			leader.gives("", errOrigin)
			_, err := waiter.later()
			isLoadError(t, err, errOrigin.Error())
			if waiter.took > 3*time.Second+100*time.Millisecond {
				t.Errorf("it took %v; want the remaining time of the lease at most", waiter.took)
			}
			o.loads(1)
		})
	}
}

// silent is a store that loses all messages but reports that messages arrive.
type silent struct{ *memstore.Store }

func (silent) Listen(string, func(cacheguard.Message)) func() { return func() {} }

// TestInvalidateForgetsFailures at once, wherever they happened.
func TestInvalidateForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{ErrorTTL: time.Minute}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		for _, invalidating := range []*cacheguard.Cache[string]{here, there} {
			getting(t.Context(), t, here, "k", failingWith[string](errOrigin)).gives("", errOrigin)
			if err := invalidating.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			getting(t.Context(), t, here, "k", returning("v")).gives("v", nil)
			if err := invalidating.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		getting(t.Context(), t, here, "k", failingWith[string](errOrigin)).gives("", errOrigin)
		if err := there.Set(t.Context(), "k", "set"); err != nil {
			t.Fatal(err)
		}
		getting(t.Context(), t, here, "k", returning("unexpected")).gives("set", nil)
		getting(t.Context(), t, here, "j", failingWith[string](errOrigin)).gives("", errOrigin)
		beginCall(t, func() (string, error) {
			return there.Update(t.Context(), "j", returning("updated"))
		}).gives("updated", nil)
		getting(t.Context(), t, here, "j", returning("unexpected")).gives("updated", nil)
	})
}

func TestErrorText(t *testing.T) {
	long := errors.New(strings.Repeat("x", 1000))
	for name, c := range map[string]struct {
		text func(error) string
		err  error
		want string
	}{
		"default": {nil, errOrigin, errOrigin.Error()},
		"own":     {func(err error) string { return "no details" }, errOrigin, "no details"},
		"of its cause": {
			func(err error) string {
				return errors.Unwrap(err).Error()
			}, &secretive{errOrigin}, errOrigin.Error(),
		},
		"long": {nil, long, strings.Repeat("x", 256)},
		"long and own": {
			func(err error) string { return err.Error() + "y" }, long, strings.Repeat("x", 256),
		},
		"none":           {func(err error) string { return "" }, errOrigin, ""},
		"of a deadline":  {nil, context.DeadlineExceeded, context.DeadlineExceeded.Error()},
		"of a cancelled": {nil, context.Canceled, context.Canceled.Error()},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{ErrorText: c.text}
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			getting(t.Context(), t, here, "k", failingWith[string](c.err)).gives("", c.err)
			_, err := getting(t.Context(), t, there, "k", returning("unexpected")).now()
			isLoadError(t, err, c.want)
		})
	}
}

type secretive struct{ cause error }

func (s *secretive) Error() string { return "secret" }
func (s *secretive) Unwrap() error { return s.cause }

// TestManyFailures are remembered in a bounded number; the others are known by their text.
func TestManyFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{ErrorTTL: time.Minute})
		const n = 3000
		for i := range n {
			if _, err := c.Get(t.Context(), string(rune(i)),
				failingWith[string](errOrigin)); !errors.Is(err, errOrigin) {
				t.Fatalf("Get: %v", err)
			}
		}
		for i := range n {
			_, err := c.Get(t.Context(), string(rune(i)), returning("unexpected"))
			var failed *cacheguard.LoadError
			if !errors.Is(err, errOrigin) && !errors.As(err, &failed) {
				t.Fatalf("Get: %v; want the failure", err)
			}
		}
		<-time.After(2 * time.Minute)
		for i := range n { // the old ones make room
			_, _ = c.Get(t.Context(), "again "+string(rune(i)), failingWith[string](errOrigin))
		}
		if _, err := c.Get(t.Context(), "again \x00", returning("unexpected")); !errors.Is(err,
			errOrigin) {
			t.Errorf("Get: %v; want %v", err, errOrigin)
		}
	})
}

// Invalidate also removes the error that callers get while ErrorTTL runs out.
func TestInvalidateForgetsAFailureInItsGrace(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[int]{})
		time.Sleep(time.Millisecond)
		if _, err := c.Get(t.Context(), "k", failingWith[int](errOrigin)); !errors.Is(err,
			errOrigin) {
			t.Fatal(err)
		}
		time.Sleep(1020 * time.Millisecond)
		must(t, c.Invalidate(t.Context(), "k"))
		if v, err := c.Get(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Errorf("after Invalidate: %v, %v", v, err)
		}
	})
}
