package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{TTL: time.Minute}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		for _, v := range []string{"v", "w", ""} {
			if err := here.Set(t.Context(), "k", v); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*cacheguard.Cache[string]{here, there} {
				if r, err := c.Peek(t.Context(), "k"); r.Value != v ||
					r.Status != cacheguard.StatusHit || r.FreshFor != time.Minute || err != nil {
					t.Errorf("Peek: %+v, %v; want %q", r, err, v)
				}
			}
		}
		<-time.After(time.Minute)
		getting(t.Context(), t, there, "k", returning("x")).gives("x", nil)
	})
}

// TestSetDuringALoad: callers that already wait get the loaded value, because they asked before the
// Set. Later callers get the value of Set.
func TestSetDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiter := getting(t.Context(), t, there, "k", o.load)
		waiter.waits()
		if err := here.Set(t.Context(), "k", "set"); err != nil {
			t.Fatal(err)
		}
		waiter.gives("set", nil)
		getting(t.Context(), t, here, "k", o.load).gives("set", nil)
		load.gives("loaded")
		leader.gives("loaded", nil)
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			getting(t.Context(), t, c, "k", o.load).gives("set", nil)
		}
		o.loads(1)
	})
}

// TestSetThatFails: Set returns an error, and this process doesn't use the value that it was
// loading.
func TestSetThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		early := getting(t.Context(), t, c, "k", o.load)
		old := o.next()
		store.onto("Claim", fails(1))
		if err := c.Set(t.Context(), "k", "v"); !errors.Is(err, errTampered) {
			t.Errorf("Set: %v; want %v", err, errTampered)
		}
		late := getting(t.Context(), t, c, "k", o.load)
		late.waits()
		old.gives("old")
		early.gives("old", nil)
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Errorf("Set: %v", err)
		}
		getting(t.Context(), t, c, "k", o.load).gives("v", nil)
	})
}

// TestSetThatFailsLeavesNoLease: loads don't wait for a claim whose value was not stored, not even
// if the invalidation that is repeated doesn't get through.
func TestSetThatFailsLeavesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		store.onto("Fill", fails(1))
		store.onto("Invalidate", func(context.Context) error { return errTampered })
		if err := c.Set(t.Context(), "k", "v"); !errors.Is(err, cacheguard.ErrPending) {
			t.Errorf("Set: %v; want that it is repeated", err)
		}
		synctest.Wait()
		began := time.Now()
		getting(t.Context(), t, other, "k", returning("newer")).gives("newer", nil)
		if took := time.Since(began); took != 0 {
			t.Errorf("a load in another process waited for %v", took)
		}
		store.onto("Invalidate", nil)
	})
}

// TestWritesWaitForASilentStore: a store that doesn't answer holds up a write for the time of two
// steps at most, and the change is repeated afterwards.
func TestWritesWaitForASilentStore(t *testing.T) {
	const step = 250 * time.Millisecond
	for name, write := range map[string]struct {
		do    func(ctx context.Context, c *cacheguard.Cache[string]) error
		steps int
	}{
		"Set": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Set(ctx, "k", "new")
		}, 1},
		"Set of a value that is too large": {func(
			ctx context.Context, c *cacheguard.Cache[string],
		) error {
			return c.Set(ctx, "k", strings.Repeat("x", 1000))
		}, 1},
		"Invalidate": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		}, 1},
		"Update": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			_, err := c.Update(ctx, "k", returning("new"))
			return err
		}, 2},
	} {
		for _, policy := range []cacheguard.StorePolicy{
			cacheguard.FailOpen, cacheguard.FailClosed,
		} {
			inBubble(t, fmt.Sprint(name, ", policy ", policy), func(t *testing.T) {
				store := newTampered()
				c := openOn(t, store,
					cacheguard.Options[string]{MaxValueSize: 500, OnStoreDown: policy})
				must(t, c.Set(t.Context(), "k", "old"))
				for _, kind := range []string{"Claim", "Fill", "Invalidate"} {
					store.onto(kind, func(context.Context) error {
						time.Sleep(step)
						return context.DeadlineExceeded
					})
				}
				began := time.Now()
				if err := write.do(t.Context(), c); !errors.Is(err, cacheguard.ErrPending) {
					t.Errorf("the write returned %v; want that it is repeated", err)
				}
				if took := time.Since(began); took != time.Duration(write.steps)*step {
					t.Errorf("it took %v; want %d steps of %v", took, write.steps, step)
				}
				for _, kind := range []string{"Claim", "Fill", "Invalidate"} {
					store.onto(kind, nil)
				}
				must(t, c.Flush(t.Context()))
				getting(t.Context(), t, openOn(t, store, cacheguard.Options[string]{}), "k",
					returning("newer")).gives("newer", nil)
			})
		}
	}
}
