package cacheguard_test

import (
	"errors"
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
				if r, err := c.Peek(t.Context(), "k"); r.Value != v || r.Status != cacheguard.StatusHit || r.FreshFor != time.Minute || err != nil {
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
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
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
