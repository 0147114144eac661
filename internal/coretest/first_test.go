package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A process that expects no value asks for the lease at once. It expects no value for a key that it
// hasn't seen, that it has changed, or whose value has ended. If it expects a value, it reads.
func TestLeaseIsAskedForFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{TTL: time.Minute})
		step := func(what, want string, gets, leases int) {
			t.Helper()
			before := [2]int{store.steps("Get"), store.steps("Lease")}
			getting(t.Context(), t, c, "k", returning(what)).gives(want, nil)
			if got := [2]int{
				store.steps("Get") - before[0], store.steps("Lease") - before[1],
			}; got != [2]int{gets, leases} {
				t.Errorf("%s: the store was asked for %d values and %d leases; want %d and %d",
					what, got[0], got[1], gets, leases)
			}
		}
		step("new", "new", 0, 1)
		step("a hit", "new", 1, 0)
		must(t, c.Invalidate(t.Context(), "k"))
		step("changed", "changed", 0, 1)
		step("another hit", "changed", 1, 0)
		time.Sleep(time.Minute + 2*time.Millisecond)
		step("ended", "ended", 0, 1)
		must(t, c.Set(t.Context(), "k", "set"))
		step("a hit of what was set", "set", 1, 0)
		if _, err := c.Update(t.Context(), "k", returning("updated")); err != nil {
			t.Fatal(err)
		}
		step("a hit of what was updated", "updated", 1, 0)
	})
}

// If there is a value after all, a request for the lease is a hit like any other. No lease is
// granted, and no miss is counted.
func TestValueInThePlaceOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		var mu sync.Mutex // guards told
		var told []cacheguard.EventKind
		c := openOn(t, store,
			cacheguard.Options[string]{Observer: observing(func(e cacheguard.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, e.Kind)
			})})
		other := openOn(t, store, cacheguard.Options[string]{})
		for n := range 10 {
			must(t, other.Set(t.Context(), fmt.Sprint(n), "v"))
		}
		load := failingWith[string](errors.New("there is a value"))
		r, err := c.GetResult(t.Context(), "0", load)
		if err != nil || r.Status != cacheguard.StatusHit || r.Value != "v" || r.Degraded {
			t.Errorf("got %+v, %v; want a hit", r, err)
		}
		if n := store.steps("Lease"); n != 1 ||
			!slices.Equal(told, []cacheguard.EventKind{cacheguard.EventHit}) {
			t.Errorf("%d questions, told of %v; want one, and a hit", n, told)
		}
		k := cacheguard.Key{Cache: "behave", Key: "0"}
		ask := cacheguard.LeaseAsk{
			Token: cacheguard.ID{1}, TTL: time.Minute, Seen: seenOf(t, store.Store, "behave", "0"),
		}
		if a, err := store.Store.Lease(t.Context(), k, ask); err != nil ||
			a.State != cacheguard.LeaseGranted {
			t.Errorf("the lease is %+v, %v; want it to be free", a, err)
		}
		for n := range 9 {
			getting(t.Context(), t, c, fmt.Sprint(n+1), load).gives("v", nil)
		}
		if gets, leases := store.steps("Get"), store.steps("Lease"); gets != 9 || leases != 1 {
			t.Errorf("after that 9 hits asked for %d values and %d leases; want 9 and none", gets,
				leases-1)
		}
		slotsAreFree(t, c, 64)
	})
}

// foundBy is what a call got and what it cost.
type foundBy struct {
	Result cacheguard.Result[string]
	Stale  bool // instead of an error
	Err    string
	Loads  int
}

// A call that asks for the lease at once gets the same result as a call that looks first, for any
// content of the store.
func TestAskingFirstFindsTheSame(t *testing.T) {
	opts := cacheguard.Options[string]{
		TTL: time.Minute, StaleWhileRevalidate: time.Minute, StaleIfError: time.Hour,
	}
	entry := func(e cacheguard.Entry[string]) func(*testing.T, *cacheguard.Cache[string]) {
		return func(t *testing.T, c *cacheguard.Cache[string]) {
			_, err := c.GetEntry(t.Context(), "k", func(
				context.Context, cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				return e, nil
			})
			must(t, err)
		}
	}
	then := func(
		first func(*testing.T, *cacheguard.Cache[string]),
		next func(t *testing.T, c *cacheguard.Cache[string]) error,
	) func(*testing.T, *cacheguard.Cache[string]) {
		return func(t *testing.T, c *cacheguard.Cache[string]) {
			first(t, c)
			must(t, next(t, c))
		}
	}
	later := func(d time.Duration) func(*testing.T, *cacheguard.Cache[string]) error {
		return func(*testing.T, *cacheguard.Cache[string]) error { time.Sleep(d); return nil }
	}
	value, tagged := entry(cacheguard.Entry[string]{Value: "old"}),
		entry(cacheguard.Entry[string]{
			Value: "old", Tags: []string{"t", "u"}, SoftTags: []string{"s"},
		})
	for name, stands := range map[string]func(t *testing.T, c *cacheguard.Cache[string]){
		"nothing": func(*testing.T, *cacheguard.Cache[string]) {},
		"fresh":   value,
		"does not exist": func(t *testing.T, c *cacheguard.Cache[string]) {
			getting(t.Context(), t, c, "k", failingWith[string](cacheguard.ErrNotFound)).gives("",
				cacheguard.ErrNotFound)
		},
		"does not exist, over": func(t *testing.T, c *cacheguard.Cache[string]) {
			getting(t.Context(), t, c, "k", failingWith[string](cacheguard.ErrNotFound)).gives("",
				cacheguard.ErrNotFound)
			time.Sleep(time.Hour)
		},
		"stale":           then(value, later(90*time.Second)),
		"stale, on error": then(value, later(10*time.Minute)),
		"over":            then(value, later(2*time.Hour)),
		"shown to the next load": then(entry(cacheguard.Entry[string]{
			Value: "old", TTL: time.Second, StaleWhileRevalidate: -1, StaleIfError: -1,
			Keep: time.Hour,
		}), later(time.Minute)),
		"for one caller": entry(cacheguard.Entry[string]{
			Value: "old", NoShare: true, TTL: time.Hour,
		}),
		"for one caller, over": then(entry(cacheguard.Entry[string]{
			Value: "old", NoShare: true, TTL: time.Second,
		}), later(time.Minute)),
		"marked": then(value, func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.MarkStale(t.Context(), "k")
		}),
		"invalidated": then(value, func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.Invalidate(t.Context(), "k")
		}),
		"all invalidated": then(value, func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(t.Context())
		}),
		"tagged": tagged,
		"tag invalidated": then(tagged, func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(t.Context(), "u")
		}),
		"other tag": then(tagged, func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(t.Context(), "w")
		}),
		"tag marked stale": then(tagged, func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.MarkStaleTags(t.Context(), "s")
		}),
		"a failure": func(t *testing.T, c *cacheguard.Cache[string]) {
			getting(t.Context(), t, c, "k", failingWith[string](errOrigin)).gives("", errOrigin)
		},
		"a failure beside a value": func(t *testing.T, c *cacheguard.Cache[string]) {
			value(t, c)
			time.Sleep(10 * time.Minute)
			getting(t.Context(), t, c, "k", failingWith[string](errOrigin)).gives("old", nil)
		},
	} {
		for load, origin := range map[string]cacheguard.LoadFunc[string]{
			"loads": returning("new"), "fails": failingWith[string](errOrigin),
		} {
			var all [2]foundBy
			for n, first := range []string{"look", "ask"} {
				inBubble(t, name+"/"+load+"/"+first, func(t *testing.T) {
					store := newTampered()
					stands(t, openOn(t, store, opts))
					open := openOn[string]
					if first == "look" {
						open = openLookingFirst[string]
					}
					c := open(t, store, opts)
					before := store.steps("Get")
					got := &all[n]
					r, err := c.GetResult(t.Context(), "k", func(
						ctx context.Context,
					) (string, error) {
						got.Loads++
						return origin(ctx)
					})
					if asked := store.steps("Get") == before; asked != (first == "ask") {
						t.Errorf("it was read first: %v", !asked)
					}
					synctest.Wait()
					if got.Result, _ = shown(r, nil); r.Err != nil {
						got.Result.Err, got.Stale = nil, true
					}
					if err != nil {
						got.Err = err.Error()
					}
				})
			}
			if all[0] != all[1] {
				t.Errorf("%s, %s: who looks first gets %+v; who asks first %+v", name, load, all[0],
					all[1])
			}
		}
	}
}

// If a request for the lease gets no answer, the value is read instead. But if the request took as
// long as a read may take, the call doesn't wait for a read, too.
func TestAskingFirstWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		gets  int
		value string
	}{
		"refused": {errTampered, 1, "old"}, "too late": {context.DeadlineExceeded, 0, "new"},
		"no connection": {
			fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: errTampered}), 0, "new",
		}, "broken off": {io.EOF, 0, "new"},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := newTampered()
			other, cache := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, store, cacheguard.Options[string]{})
			must(t, other.Set(t.Context(), "k", "old"))
			store.onto("Lease", func(context.Context) error { return c.err })
			getting(t.Context(), t, cache, "k", returning("new")).gives(c.value, nil)
			if n := store.steps("Get"); n != c.gets {
				t.Errorf("%d reads; want %d", n, c.gets)
			}
			store.onto("Lease", nil)
			synctest.Wait()
			if n := store.steps("Release"); n != 1 {
				t.Errorf("the lease, which may have been granted, was given back %d times", n)
			}
			slotsAreFree(t, cache, 64)
		})
	}
}

// A call takes a slot before it asks for the lease, so that no call with a lease waits for a slot.
// If half of the slots are taken, a value is looked up first.
func TestAskingFirstNeedsASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{MaxLoads: 4})
		o := newScriptedOrigin[string](t)
		var calls []*begun[string]
		var loads []*scriptedLoad[string]
		for n, want := range [][2]int{{0, 1}, {0, 2}, {1, 3}, {2, 4}, {3, 4}} {
			calls = append(calls, getting(t.Context(), t, c, fmt.Sprint(n), o.load))
			if synctest.Wait(); n < 4 {
				loads = append(loads, o.next())
			}
			if got := [2]int{store.steps("Get"), store.steps("Lease")}; got != want {
				t.Errorf("call %d: %v reads and questions; want %v", n, got, want)
			}
		}
		loads[0].gives("v")
		loads = append(loads, o.next())
		for _, l := range loads[1:] {
			l.gives("v")
		}
		for _, c := range calls {
			c.gives("v", nil)
		}
		only := openOn(t, store, cacheguard.Options[string]{MaxLoads: 1, Name: "one"})
		getting(t.Context(), t, only, "k", returning("v")).gives("v", nil)
		if n := store.steps("Get"); n != 4 {
			t.Errorf("the only slot was taken by who didn't know whether there is a load")
		}
	})
}

// When the cache closes, or the caller's time ends, while the lease is asked for, callers get that
// error and the lease is given back.
func TestAskingFirstIsLeft(t *testing.T) {
	inBubble(t, "close", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		answered := make(chan struct{})
		store.past("Lease", func(context.Context) error { <-answered; return nil })
		leader, joiner := getting(t.Context(), t, c, "k", returning("v")),
			getting(t.Context(), t, c, "k", returning("v"))
		leader.waits()
		closing := beginCall(t, func() (struct{}, error) { return struct{}{}, c.Close() })
		closing.waits()
		close(answered)
		leader.gives("", cacheguard.ErrClosed)
		joiner.gives("", cacheguard.ErrClosed)
		closing.gives(struct{}{}, nil)
		if store.past("Lease", nil); !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
	})
	inBubble(t, "cancelled", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		store.onto("Lease", func(context.Context) error { <-over; return context.DeadlineExceeded })
		leader := getting(ctx, t, c, "k", returning("leader's"))
		leader.waits()
		joiner := getting(t.Context(), t, c, "k", returning("joiner's"))
		joiner.waits()
		cancel()
		store.onto("Lease", nil)
		close(over)
		leader.gives("", context.Canceled)
		if v, err := joiner.later(); err != nil || v == "" {
			t.Errorf("who has joined got %q, %v", v, err)
		}
		if n := store.steps("Get"); n != 0 {
			t.Errorf("%d reads for a caller who has left", n)
		}
	})
	inBubble(t, "deadline", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// Granted, but the answer comes too late.
		store.past("Lease", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		leader := getting(ctx, t, c, "k", returning("leader's"))
		leader.waits()
		joiner := getting(t.Context(), t, c, "k", returning("joiner's"))
		joiner.waits()
		store.past("Lease", nil)
		// A result that is there first wins.
		if _, err := leader.later(); err != nil && !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("after %v the call returned %v; want it to end with its time",
				time.Since(began), err)
		}
		if v, err := joiner.later(); err != nil || v == "" {
			t.Errorf("who has joined got %q, %v", v, err)
		}
	})
}
