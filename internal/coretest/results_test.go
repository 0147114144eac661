package coretest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

type result = cacheguard.Result[string]

// TestResult: the result shows how each caller got the value.
func TestResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{TTL: time.Minute}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[string](t)
		leader := gettingResult(t.Context(), t, here, "k", o.load)
		load := o.next()
		joiner, waiter := gettingResult(t.Context(), t, here, "k", o.load),
			gettingResult(t.Context(), t, there, "k", o.load)
		joiner.waits()
		waiter.waits()
		secondWaiter := gettingResult(t.Context(), t, there, "k", o.load)
		secondWaiter.waits()
		<-time.After(time.Second)
		load.gives("v")
		leader.gives(result{Value: "v", Status: cacheguard.StatusLoaded, FreshFor: time.Minute},
			nil)
		joiner.gives(result{Value: "v", Status: cacheguard.StatusCoalesced, FreshFor: time.Minute},
			nil)
		waiter.gives(result{Value: "v", Status: cacheguard.StatusCoalesced, FreshFor: time.Minute},
			nil)
		secondWaiter.gives(result{
			Value: "v", Status: cacheguard.StatusCoalesced, FreshFor: time.Minute,
		}, nil)
		<-time.After(10 * time.Second)
		hit := result{
			Value: "v", Status: cacheguard.StatusHit, Age: 10 * time.Second,
			FreshFor: 50 * time.Second,
		}
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			gettingResult(t.Context(), t, c, "k", o.load).gives(hit, nil)
			beginCall(t, func() (result, error) {
				return shown(c.Peek(t.Context(), "k"))
			}).gives(hit, nil)
		}
		<-time.After(50 * time.Second)
		beginCall(t, func() (result, error) {
			return shown(here.Peek(t.Context(), "k"))
		}).gives(result{}, nil)

		notFound := gettingResult(t.Context(), t, here, "gone",
			failingWith[string](cacheguard.ErrNotFound))
		notFound.gives(result{
			Status: cacheguard.StatusLoaded, NotFound: true, FreshFor: 30 * time.Second,
		}, cacheguard.ErrNotFound)
		gettingResult(t.Context(), t, there, "gone",
			o.load).gives(result{
			Status: cacheguard.StatusHit, NotFound: true, FreshFor: 30 * time.Second,
		}, cacheguard.ErrNotFound)
		o.loads(1)
	})
}

// TestPeek never loads, whatever it finds.
func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{Codec: poisonous{}})
		peek := func(key string, want result) {
			t.Helper()
			beginCall(t, func() (result, error) {
				return shown(c.Peek(t.Context(), key))
			}).gives(want, nil)
		}
		peek("nothing", result{})
		storeStale(t, store.Store, "stale", "old", false)
		peek("stale", result{
			Value: "old", Status: cacheguard.StatusStale, Age: time.Minute,
			FreshFor: -59 * time.Second,
		})
		storeStale(t, store.Store, "stale null", "", true)
		peek("stale null", result{
			Status: cacheguard.StatusStale, NotFound: true, Age: time.Minute,
			FreshFor: -59 * time.Second,
		})
		getting(t.Context(), t, c, "failed", failingWith[string](errOrigin)).gives("", errOrigin)
		peek("failed", result{})
		o := newScriptedOrigin[string](t)
		loading := getting(t.Context(), t, c, "loading", o.load)
		load := o.next()
		peek("loading", result{})
		load.gives("v")
		loading.gives("v", nil)
		if n := store.steps("Lease"); n != 2 {
			t.Errorf("the lease was asked for %d times; want once for each of the loads", n)
		}
	})
}

// TestLoadFunctionIsNil is an error that says so, also when nothing would have to be loaded.
func TestLoadFunctionIsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"Get":       func() error { _, err := c.Get(t.Context(), "k", nil); return err },
			"GetResult": func() error { _, err := c.GetResult(t.Context(), "k", nil); return err },
			"GetEntry":  func() error { _, err := c.GetEntry(t.Context(), "k", nil); return err },
			"Refresh":   func() error { _, err := c.Refresh(t.Context(), "k", nil); return err },
			"Update":    func() error { _, err := c.Update(t.Context(), "k", nil); return err },
		} {
			if err := call(); err == nil || errors.Is(err, cacheguard.ErrNotFound) {
				t.Errorf("%s: %v; want an error that says it", name, err)
			}
		}
		getting(t.Context(), t, c, "k", returning("unexpected")).gives("v", nil)
	})
}
