package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestCallerThatLeaves: a caller whose context ends gets its own context's error at once, as leader
// or as a caller that has joined. The load goes on.
func TestCallerThatLeaves(t *testing.T) {
	for _, leaver := range []string{"leader", "joiner"} {
		inBubble(t, leaver, func(t *testing.T) {
			c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
			o := newScriptedOrigin[string](t)
			leaving, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			ctxs := map[string]context.Context{"leader": t.Context(), "joiner": t.Context()}
			ctxs[leaver] = leaving
			calls := map[string]*begun[string]{}
			calls["leader"] = getting(ctxs["leader"], t, c, "k", o.load)
			load := o.next()
			calls["joiner"] = getting(ctxs["joiner"], t, c, "k", o.load)
			calls["joiner"].waits()

			leave(errors.New("of no concern to the cache"))
			calls[leaver].gives("", context.Canceled)
			delete(calls, leaver)
			if load.cancelled() {
				t.Error("the load was cancelled while somebody waits for it")
			}
			load.gives("v")
			for _, stays := range calls {
				stays.gives("v", nil)
			}
			o.loads(1)
		})
	}
}

func TestCallerWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
		defer cancel()
		hasty, patient := getting(ctx, t, c, "k", o.load), getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		if _, err := hasty.later(); err != context.DeadlineExceeded ||
			hasty.took != 70*time.Millisecond {
			t.Errorf("the call returned %v after %v; want %v after 70ms", err, hasty.took,
				context.DeadlineExceeded)
		}
		load.gives("v")
		patient.gives("v", nil)
	})
}

// TestLastCallerToLeave: the last caller that leaves cancels the load, and the lease is free at
// once. This is not a failure, so no error is remembered.
func TestLastCallerToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		ctx, leave := context.WithCancel(t.Context())
		first, second := getting(ctx, t, c, "k", o.load), getting(ctx, t, c, "k", o.load)
		load := o.next()
		if leaseFree(t, store, "k") {
			t.Error("the lease is free while the load runs")
		}
		leave()
		first.gives("", context.Canceled)
		second.gives("", context.Canceled)
		if !load.cancelled() {
			t.Error("the load was not cancelled")
		}
		if !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
		next := getting(t.Context(), t, c, "k", o.load)
		o.next().gives("v")
		next.gives("v", nil)
	})
}

// TestAbandonedLoadIsTakenOver: a process that waits for an abandoned load loads the key itself.
// The end of the abandoned load is not a result.
func TestAbandonedLoadIsTakenOver(t *testing.T) {
	for _, kind := range []string{"load", "stubborn load"} {
		inBubble(t, kind, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			here := openOn(t, store, cacheguard.Options[string]{})
			there := openOn(t, store, cacheguard.Options[string]{})
			o := newScriptedOrigin[string](t)
			fn := o.load
			if kind != "load" {
				fn = o.stubborn
			}
			ctx, leave := context.WithCancel(t.Context())
			leaver := getting(ctx, t, here, "k", fn)
			o.next()
			first, second := getting(t.Context(), t, there, "k", o.load),
				getting(t.Context(), t, there, "k", o.load)
			first.waits()
			o.idle()
			leave()
			leaver.gives("", context.Canceled)
			o.next().gives("v")
			first.gives("v", nil)
			second.gives("v", nil)
			o.loads(2)
		})
	}
}

// TestNobodyJoinsAnAbandonedLoad: no caller joins an abandoned load, even if it takes long until
// the load stops.
func TestNobodyJoinsAnAbandonedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		releasing := make(chan struct{})
		store.onto("Release", func(context.Context) error { <-releasing; return nil })
		ctx, leave := context.WithCancel(t.Context())
		leaver := getting(ctx, t, c, "k", o.stubborn)
		abandoned := o.next()
		leave()
		leaver.gives("", context.Canceled)
		first := getting(t.Context(), t, c, "k", o.load)
		first.waits() // for the lease
		close(releasing)
		load := o.next()
		second := getting(t.Context(), t, c, "k", o.load)
		abandoned.gives("old")
		first.waits()
		load.gives("new")
		first.gives("new", nil)
		second.gives("new", nil)
		getting(t.Context(), t, c, "k", o.load).gives("new", nil)
		o.loads(2)
	})
}

// TestLoadThatNobodyWaitsFor: if all callers leave while the answer with the lease is on its way,
// the load does not begin.
func TestLoadThatNobodyWaitsFor(t *testing.T) {
	for _, end := range []string{"caller leaves", "cache is closed"} {
		inBubble(t, end, func(t *testing.T) {
			store := newTampered()
			c := openOn(t, store, cacheguard.Options[string]{MaxLoads: 1})
			granting := make(chan struct{})
			store.past("Lease", func(context.Context) error { <-granting; return nil })
			o := newScriptedOrigin[string](t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			call := getting(ctx, t, c, "k", o.load)
			call.waits()
			want, closing := context.Canceled, (*begun[struct{}])(nil)
			if end == "caller leaves" {
				leave()
				call.gives("", want)
			} else {
				want = cacheguard.ErrClosed
				closing = beginCall(t, func() (struct{}, error) { return struct{}{}, c.Close() })
				closing.waits()
			}
			close(granting)
			call.gives("", want)
			o.idle()
			if !leaseFree(t, store, "k") {
				t.Error("the lease is held")
			}
			if closing != nil {
				closing.gives(struct{}{}, nil)
			} else {
				slotsAreFree(t, c, 1)
			}
		})
	}
}

// TestLeaderThatLeavesAsItsLoadStarts: a leader is cancelled while other callers already wait for
// its load.
func TestLeaderThatLeavesAsItsLoadStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openLookingFirst(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		ctx, leave := context.WithCancel(t.Context())
		looking := make(chan struct{})
		store.onto("Get", func(context.Context) error { <-looking; return nil })
		leader := getting(ctx, t, c, "k", func(ctx context.Context) (string, error) {
			leave()
			return o.load(ctx)
		})
		leader.waits()
		joiner := getting(t.Context(), t, c, "k", o.load)
		joiner.waits()
		close(looking)
		load := o.next()
		leader.gives("", context.Canceled)
		if load.cancelled() {
			t.Error("the load was cancelled while somebody waits for it")
		}
		load.gives("v")
		joiner.gives("v", nil)
	})
}

// TestLeaderThatLeavesWhileItLooksUp: a look-up that was cut short doesn't mean that the store has
// trouble. Callers that have joined the leader get the same result as without it.
func TestLeaderThatLeavesWhileItLooksUp(t *testing.T) {
	for name, policy := range map[string]cacheguard.StorePolicy{
		"open": cacheguard.FailOpen, "closed": cacheguard.FailClosed,
	} {
		for _, verb := range []string{"Get", "Refresh"} {
			inBubble(t, verb+" fails "+name, func(t *testing.T) {
				store := newTampered()
				opts := cacheguard.Options[string]{OnStoreDown: policy}
				c, other := openOn(t, store, opts), openOn(t, store, opts)
				o := newScriptedOrigin[string](t)
				get := func(ctx context.Context) *begun[string] {
					return beginCall(t, func() (string, error) {
						if verb == "Refresh" {
							return c.Refresh(ctx, "k", o.load)
						}
						return c.Get(ctx, "k", o.load)
					})
				}
				// This is how a store behaves that waits for an answer on its caller's context.
				store.onto("Get", func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
				ctx, leave := context.WithCancel(t.Context())
				leader := get(ctx)
				leader.waits()
				joiner := get(t.Context())
				joiner.waits()
				store.onto("Get", nil)
				leave()
				leader.gives("", context.Canceled)
				load := o.next()
				if leaseFree(t, store, "k") {
					t.Error("the load has no lease: another process loads at the same time")
				}
				elsewhere := getting(t.Context(), t, other, "k", o.load)
				load.gives("v")
				joiner.gives("v", nil)
				elsewhere.gives("v", nil)
				o.loads(1)
			})
		}
	}
}

type contextKey struct{}

func TestContextOfALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{LoadTimeout: 20 * time.Second})
		o := newScriptedOrigin[string](t)
		starter, cancel := context.WithTimeout(context.WithValue(t.Context(), contextKey{},
			"starter"), time.Second)
		defer cancel()
		joiner := context.WithValue(t.Context(), contextKey{}, "joiner")
		began := time.Now()
		first, second := getting(starter, t, c, "k", o.load), (*begun[string])(nil)
		load := o.next()
		second = getting(joiner, t, c, "k", o.load)
		if v := load.ctx.Value(contextKey{}); v != "starter" {
			t.Errorf("the load's context has the value %v; want the starter's", v)
		}
		if d, ok := load.ctx.Deadline(); !ok || d.Sub(began) != 20*time.Second {
			t.Errorf("the load's deadline is %v after it began, %v; want LoadTimeout", d.Sub(began),
				ok)
		}
		if _, err := first.later(); err != context.DeadlineExceeded {
			t.Errorf("the starter got %v; want %v", err, context.DeadlineExceeded)
		}
		if load.cancelled() {
			t.Error("the starter's deadline ended the load")
		}
		load.gives("v")
		second.gives("v", nil)
	})
}

// TestContextThatIsDone: if the context has already ended, a call returns its error, even if the
// value is in the local tier.
func TestContextThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		before := store.steps("Get") + store.steps("Lease") + store.steps("Fill") +
			store.steps("Claim")
		load := func(context.Context) (string, error) { t.Error("it loads"); return "", nil }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func() error{
			"Get":       func() error { _, err := c.Get(ctx, "k", load); return err },
			"GetResult": func() error { _, err := c.GetResult(ctx, "other", load); return err },
			"GetEntry": func() error {
				_, err := c.GetEntry(ctx, "k", func(
					ctx context.Context, _ cacheguard.Result[string],
				) (e cacheguard.Entry[string], err error) {
					e.Value, err = load(ctx)
					return e, err
				})
				return err
			},
			"Refresh": func() error { _, err := c.Refresh(ctx, "k", load); return err },
			"Peek":    func() error { _, err := c.Peek(ctx, "k"); return err },
			"Update":  func() error { _, err := c.Update(ctx, "k", load); return err },
		} {
			if err := call(); err != context.Canceled {
				t.Errorf("%s: %v; want %v", name, err, context.Canceled)
			}
		}
		if after := store.steps("Get") + store.steps("Lease") + store.steps("Fill") +
			store.steps("Claim"); after != before {
			t.Errorf("the store was asked %d times", after-before)
		}
	})
}

// TestWritesGoThrough: steps that end a lease, store a value or tell a change never use a caller's
// context.
func TestWritesGoThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		for _, step := range []string{
			"Lease", "Fill", "Conclude", "Release", "Claim", "Invalidate",
		} {
			store.onto(step, func(ctx context.Context) error {
				if ctx.Done() != nil {
					t.Errorf("%s runs on a context that can end", step)
				}
				return nil
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.Get(ctx, "filled", returning("v"))
		c.Get(ctx, "failed", failingWith[string](errTampered))
		c.Set(ctx, "set", "v")
		c.Invalidate(ctx, "invalidated")
		c.Update(ctx, "updated", returning("v"))
		c.Update(ctx, "updated", failingWith[string](errTampered))
		o := newScriptedOrigin[string](t)
		left := getting(ctx, t, c, "left", o.load)
		o.next()
		cancel()
		left.gives("", context.Canceled)
		for _, step := range []string{
			"Lease", "Fill", "Conclude", "Release", "Claim", "Invalidate",
		} {
			if store.steps(step) == 0 {
				t.Errorf("this test had no %s", step)
			}
		}
	})
}

// TestChangeOfACallerThatHasLeft: the origin has changed, so the store has to learn of the change
// although the caller's context has ended before the call.
func TestChangeOfACallerThatHasLeft(t *testing.T) {
	entry := func(v string) cacheguard.Entry[string] {
		return cacheguard.Entry[string]{Value: v, Tags: []string{"t"}, SoftTags: []string{"s"}}
	}
	tooBig := string(make([]byte, 100))
	for name, test := range map[string]struct {
		change func(ctx context.Context, c *cacheguard.Cache[string]) error
		want   string // what a reader gets
	}{
		"Set": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Set(ctx, "k", "new")
		}, "new"},
		"SetEntry": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.SetEntry(ctx, "k", entry("new"))
		}, "new"},
		"Set of a value that is too large": {func(
			ctx context.Context, c *cacheguard.Cache[string],
		) error {
			if err := c.Set(ctx, "k", tooBig); !errors.Is(err, cacheguard.ErrTooLarge) {
				return errors.Join(errors.New("want ErrTooLarge"), err)
			}
			return nil
		}, "loaded"},
		"Invalidate": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		}, "loaded"},
		"MarkStale": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStale(ctx, "k")
		}, "loaded"},
		"InvalidateTags": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "t")
		}, "loaded"},
		"MarkStaleTags": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStaleTags(ctx, "s")
		}, "loaded"},
		"InvalidateAll": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		}, "loaded"},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{MaxValueSize: 50}
			c, other := openOn(t, store, opts), openOn(t, store, opts)
			if err := c.SetEntry(t.Context(), "k", entry("old")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // on the fake clock, so that the change is later than the value
			ended, end := context.WithCancel(t.Context())
			end()
			if err := test.change(ended, c); err != nil {
				t.Errorf("the change failed: %v", err)
			}
			for _, reader := range []*cacheguard.Cache[string]{c, other} {
				got, err := reader.Get(t.Context(), "k", func(context.Context) (string, error) {
					return "loaded", nil
				})
				if got != test.want || err != nil {
					t.Errorf("a reader got %q, %v; want %q", got, err, test.want)
				}
			}
		})
	}
}

// TestNoContext: a caller who passes no context gets an error from each call.
func TestNoContext(t *testing.T) {
	store := memstore.New(memstore.Options{})
	c := openOn(t, store, cacheguard.Options[string]{})
	load := func(context.Context) (string, error) { return "v", nil }
	entry := func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
		return cacheguard.Entry[string]{Value: "v"}, nil
	}
	many := func(context.Context, []string) (map[string]string, error) { return nil, nil }
	var none context.Context
	calls := map[string]func() error{
		"Get":       func() error { _, err := c.Get(none, "k", load); return err },
		"GetResult": func() error { _, err := c.GetResult(none, "k", load); return err },
		"GetEntry":  func() error { _, err := c.GetEntry(none, "k", entry); return err },
		"GetMany": func() error {
			_, err := c.GetMany(none, []string{"k"}, many)
			return err
		},
		"Peek":           func() error { _, err := c.Peek(none, "k"); return err },
		"Refresh":        func() error { _, err := c.Refresh(none, "k", load); return err },
		"Update":         func() error { _, err := c.Update(none, "k", load); return err },
		"Set":            func() error { return c.Set(none, "k", "v") },
		"Invalidate":     func() error { return c.Invalidate(none, "k") },
		"MarkStale":      func() error { return c.MarkStale(none, "k") },
		"InvalidateTags": func() error { return c.InvalidateTags(none, "t") },
		"MarkStaleTags":  func() error { return c.MarkStaleTags(none, "t") },
		"InvalidateAll":  func() error { return c.InvalidateAll(none) },
		"Flush":          func() error { return c.Flush(none) },
		"Shutdown":       func() error { return c.Shutdown(none) },
		"Committed": func() error {
			_, err := cacheguard.Committed(none, store, "c")
			return err
		},
	}
	for name, call := range calls {
		if err := call(); err == nil || err.Error() != "cacheguard: the context is nil" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// atEnds records how loads ended. stop is the cause of the load's context at that time.
type atEnds struct {
	mu   sync.Mutex // guards ends
	ends []endOfLoad
}

type endOfLoad struct {
	kind      cacheguard.EventKind
	err, stop error
}

func (a *atEnds) Observe(ctx context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventLoad || e.Kind == cacheguard.EventLoadLate {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ends = append(a.ends, endOfLoad{e.Kind, e.Err, context.Cause(ctx)})
	}
}

// TestCancelledLoadIsNoFailure: if a load fails because the cache has cancelled it, its events have
// the reason and not the load's own error. Panics, results and failures at LoadTimeout stay as they
// are.
func TestCancelledLoadIsNoFailure(t *testing.T) {
	type load = cacheguard.LoadFunc[string]
	obeys := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", fmt.Errorf("query: %w", ctx.Err())
	}
	var stack *cacheguard.PanicError
	isCause := func(e endOfLoad) bool {
		return e.err == e.stop && !errors.Is(e.err, context.Canceled)
	}
	is := func(want error) func(endOfLoad) bool {
		return func(e endOfLoad) bool { return e.err == want }
	}
	for name, c := range map[string]struct {
		load   load
		ending string
		right  func(endOfLoad) bool
	}{
		"closed":      {obeys, "close", is(cacheguard.ErrClosed)},
		"left":        {obeys, "leave", isCause},
		"lease taken": {obeys, "steal", is(cacheguard.ErrLeaseLost)},
		"too slow": {obeys, "", func(e endOfLoad) bool {
			return errors.Is(e.err, context.DeadlineExceeded) && strings.HasPrefix(e.err.Error(), "query:")
		}},
		"left, and a panic": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			panic("p")
		}, "leave", func(e endOfLoad) bool { return errors.As(e.err, &stack) }},
		"left, and a value": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "v", nil
		}, "leave", is(nil)},
		"left, and not found": {func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", cacheguard.ErrNotFound
		}, "leave", is(nil)},
	} {
		inBubble(t, name, func(t *testing.T) {
			var seen atEnds
			store := newTampered()
			cache := openOn(t, store, cacheguard.Options[string]{Observer: &seen})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			caller := getting(ctx, t, cache, "k", c.load)
			caller.waits()
			switch c.ending {
			case "close":
				cache.Close()
			case "leave":
				leave()
			case "steal":
				other, o := openOn(t, store.Store, cacheguard.Options[string]{}),
					newScriptedOrigin[string](t)
				stolen(t, store, other, o.load)
				o.next().gives("v")
			}
			caller.later()
			cache.Close()
			if len(seen.ends) == 0 {
				t.Fatal("no load has ended")
			}
			for _, e := range seen.ends {
				if !c.right(e) {
					t.Errorf("%v has the error %v; the load was stopped by %v", e.kind, e.err,
						e.stop)
				}
			}
		})
	}
}
