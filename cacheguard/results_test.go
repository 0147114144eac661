package cacheguard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

type result = cacheguard.Result[string]

// TestResult says how each caller came to the value.
func TestResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{TTL: time.Minute}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[string](t)
		leader := gettingResult(t.Context(), t, here, "k", o.load)
		load := o.next()
		joiner, waiter := gettingResult(t.Context(), t, here, "k", o.load), gettingResult(t.Context(), t, there, "k", o.load)
		joiner.waits()
		waiter.waits()
		secondWaiter := gettingResult(t.Context(), t, there, "k", o.load)
		secondWaiter.waits()
		<-time.After(time.Second)
		load.gives("v")
		leader.gives(result{Value: "v", Status: cacheguard.StatusLoaded, FreshFor: time.Minute}, nil)
		joiner.gives(result{Value: "v", Status: cacheguard.StatusCoalesced, FreshFor: time.Minute}, nil)
		waiter.gives(result{Value: "v", Status: cacheguard.StatusCoalesced, FreshFor: time.Minute}, nil)
		secondWaiter.gives(result{Value: "v", Status: cacheguard.StatusCoalesced, FreshFor: time.Minute}, nil)
		<-time.After(10 * time.Second)
		hit := result{Value: "v", Status: cacheguard.StatusHit, Age: 10 * time.Second, FreshFor: 50 * time.Second}
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			gettingResult(t.Context(), t, c, "k", o.load).gives(hit, nil)
			beginCall(t, func() (result, error) { return shown(c.Peek(t.Context(), "k")) }).gives(hit, nil)
		}
		<-time.After(50 * time.Second)
		beginCall(t, func() (result, error) { return shown(here.Peek(t.Context(), "k")) }).gives(result{}, nil)

		notFound := gettingResult(t.Context(), t, here, "gone", failingWith[string](cacheguard.ErrNotFound))
		notFound.gives(result{Status: cacheguard.StatusLoaded, NotFound: true, FreshFor: 30 * time.Second}, cacheguard.ErrNotFound)
		gettingResult(t.Context(), t, there, "gone", o.load).gives(result{Status: cacheguard.StatusHit, NotFound: true, FreshFor: 30 * time.Second}, cacheguard.ErrNotFound)
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
			beginCall(t, func() (result, error) { return shown(c.Peek(t.Context(), key)) }).gives(want, nil)
		}
		peek("nothing", result{})
		storeStale(t, store.Store, "stale", "old", false)
		peek("stale", result{Value: "old", Status: cacheguard.StatusStale, Age: time.Minute, FreshFor: -59 * time.Second})
		storeStale(t, store.Store, "stale null", "", true)
		peek("stale null", result{Status: cacheguard.StatusStale, NotFound: true, Age: time.Minute, FreshFor: -59 * time.Second})
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

func refreshing(ctx context.Context, t *testing.T, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string]) *begun[string] {
	return beginCall(t, func() (string, error) { return c.Refresh(ctx, "k", load) })
}

// TestRefresh loads although the value is fresh, once for all who ask; readers go on with what
// there is.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		for _, value := range []string{"first", "second", "third"} {
			before, _ := here.Peek(t.Context(), "k")
			calls := []*begun[string]{refreshing(t.Context(), t, here, o.load)}
			load := o.next()
			calls = append(calls, refreshing(t.Context(), t, here, o.load), refreshing(t.Context(), t, there, o.load))
			o.idle()
			if before.Status == cacheguard.StatusHit {
				getting(t.Context(), t, here, "k", o.load).gives(before.Value, nil)
				getting(t.Context(), t, there, "k", o.load).gives(before.Value, nil)
			}
			load.gives(value)
			for _, call := range calls {
				call.gives(value, nil)
			}
			getting(t.Context(), t, there, "k", o.load).gives(value, nil)
		}
		o.loads(3)
	})
}

// TestRefreshThatFails leaves what there is.
func TestRefreshThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		refreshing(t.Context(), t, c, failingWith[string](errOrigin)).gives("", errOrigin)
		getting(t.Context(), t, c, "k", returning("unexpected")).gives("v", nil)
		refreshing(t.Context(), t, c, returning("unexpected")).gives("", errOrigin)
		<-time.After(10 * time.Second) // Backoff: there is a value to serve meanwhile
		refreshing(t.Context(), t, c, failingWith[string](cacheguard.ErrNotFound)).gives("", cacheguard.ErrNotFound)
		getting(t.Context(), t, c, "k", returning("unexpected")).gives("", cacheguard.ErrNotFound)
	})
}

// TestRunningLoadCountsAsARefresh, in this process and in another one, and whatever it ends with.
func TestRunningLoadCountsAsARefresh(t *testing.T) {
	for end, ttl := range map[string]time.Duration{"value": 0, "error": 0, "error that is not remembered": -1} {
		inBubble(t, end, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{ErrorTTL: ttl}
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			o := newScriptedOrigin[string](t)
			reader := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			calls := []*begun[string]{refreshing(t.Context(), t, here, o.load), refreshing(t.Context(), t, there, o.load)}
			o.idle()
			if end == "value" {
				load.gives("v")
				reader.gives("v", nil)
				for _, call := range calls {
					call.gives("v", nil)
				}
			} else {
				load.fails(errOrigin)
				reader.gives("", errOrigin)
				calls[0].gives("", errOrigin)
				_, err := calls[1].now()
				isLoadError(t, err, errOrigin.Error())
			}
			o.loads(1)
		})
	}
}

// TestReaderDuringARefreshOfNothing waits for it like for any load.
func TestReaderDuringARefreshOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		refresh := refreshing(t.Context(), t, c, o.load)
		load := o.next()
		reader := getting(t.Context(), t, c, "k", o.load)
		o.idle()
		load.gives("v")
		refresh.gives("v", nil)
		reader.gives("v", nil)
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
