package coretest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

func shutting(ctx context.Context, t *testing.T, c *cacheguard.Cache[string]) *begun[struct{}] {
	return beginCall(t, func() (struct{}, error) { return struct{}{}, c.Shutdown(ctx) })
}

// TestShutdown: running loads finish and store their results, and no new call begins.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c, other := openOn(t, store, cacheguard.Options[string]{MaxLoads: 1}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		queued := getting(t.Context(), t, c, "queued", o.load)
		queued.waits()
		shutdown := shutting(t.Context(), t, c)
		shutdown.waits()
		getting(t.Context(), t, c, "k", o.load).gives("", cacheguard.ErrClosed)
		load.gives("v")
		leader.gives("v", nil)
		shutdown.waits()
		o.next().gives("w")
		queued.gives("w", nil)
		shutdown.gives(struct{}{}, nil)
		getting(t.Context(), t, other, "k", o.load).gives("v", nil)
		getting(t.Context(), t, other, "queued", o.load).gives("w", nil)
		o.loads(2)
	})
}

func TestShutdownThatMayNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		shutdown := shutting(ctx, t, c)
		if _, err := shutdown.later(); err != context.DeadlineExceeded ||
			shutdown.took != time.Second {
			t.Errorf("Shutdown: %v after %v; want %v after 1s", err, shutdown.took,
				context.DeadlineExceeded)
		}
		leader.gives("", cacheguard.ErrClosed)
		if !load.cancelled() {
			t.Error("the load was not cancelled")
		}
		if !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
	})
}

func TestShutdownOfAnIdleCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		shutting(ctx, t, c).gives(struct{}{}, nil)
		shutting(ctx, t, c).gives(struct{}{}, nil)
	})
}

// TestShutdownLetsNestedLoadsFinish: calls of a running load to the same cache are part of the
// load.
func TestShutdownLetsNestedLoadsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		proceed := make(chan struct{})
		outer := getting(t.Context(), t, c, "outer", func(ctx context.Context) (string, error) {
			<-proceed
			inner, err := c.Get(ctx, "inner", returning("inner"))
			return "outer of " + inner, err
		})
		outer.waits()
		waiter := getting(t.Context(), t, other, "outer", returning("unexpected"))
		waiter.waits()
		shutdown := shutting(t.Context(), t, c)
		shutdown.waits()
		close(proceed)
		outer.gives("outer of inner", nil)
		waiter.gives("outer of inner", nil)
		shutdown.gives(struct{}{}, nil)
		if _, err := c.Get(t.Context(), "inner", returning("v")); !errors.Is(err,
			cacheguard.ErrClosed) {
			t.Errorf("Get after Shutdown: %v", err)
		}
	})
}

// TestShutdownLeavesLeases that can't be given back to end by themselves.
func TestShutdownLeavesLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{LeaseTTL: time.Minute})
		store.onto("Lease", fails(always)) // it may have been granted
		store.onto("Release", fails(always))
		getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
		synctest.Wait()
		before := store.steps("Release")
		if before == 0 {
			t.Fatal("the lease is not given back at all")
		}
		began := time.Now()
		shutting(t.Context(), t, c).gives(struct{}{}, nil)
		if took := time.Since(began); took != 0 {
			t.Errorf("Shutdown took %v", took)
		}
		if n := store.steps("Release"); n != 2*before {
			t.Errorf("tried %d times more; want once for each of %d, at the end", n-before, before)
		}
	})
}
