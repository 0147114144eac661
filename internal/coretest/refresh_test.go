package coretest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

func refreshing(
	ctx context.Context, t *testing.T, c *cacheguard.Cache[string],
	load cacheguard.LoadFunc[string],
) *begun[string] {
	return beginCall(t, func() (string, error) { return c.Refresh(ctx, "k", load) })
}

// TestRefresh: Refresh loads although the value is fresh, once for all callers of Refresh. Readers
// get the stored value meanwhile.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		for _, value := range []string{"first", "second", "third"} {
			before, _ := here.Peek(t.Context(), "k")
			calls := []*begun[string]{refreshing(t.Context(), t, here, o.load)}
			load := o.next()
			calls = append(calls, refreshing(t.Context(), t, here, o.load),
				refreshing(t.Context(), t, there, o.load))
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

// TestRefreshThatFails: a Refresh that fails leaves the stored value.
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
		refreshing(t.Context(), t, c, failingWith[string](cacheguard.ErrNotFound)).gives("",
			cacheguard.ErrNotFound)
		getting(t.Context(), t, c, "k", returning("unexpected")).gives("", cacheguard.ErrNotFound)
	})
}

// TestRunningLoadCountsAsARefresh: a Refresh waits for a running load, in this process or in
// another one, and returns its result or error.
func TestRunningLoadCountsAsARefresh(t *testing.T) {
	for end, ttl := range map[string]time.Duration{
		"value": 0, "error": 0, "error that is not remembered": -1,
	} {
		inBubble(t, end, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{ErrorTTL: ttl}
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			o := newScriptedOrigin[string](t)
			reader := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			calls := []*begun[string]{
				refreshing(t.Context(), t, here, o.load), refreshing(t.Context(), t, there, o.load),
			}
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

// TestRefreshEntry loads although the value is fresh, and shows it to the load.
func TestRefreshEntry(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("one"), "one", cacheguard.StatusLoaded)
		r, err := b.RefreshEntry(t.Context(), "k", func(
			_ context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: prev.Value + " and two"}, nil
		})
		if r.Value != "one and two" || r.Status != cacheguard.StatusLoaded || err != nil {
			t.Errorf("got %+v, %v", r, err)
		}
		synctest.Wait()
		gets(t, b, "k", tagged("unexpected"), "one and two", cacheguard.StatusHit)
		if _, err := a.RefreshEntry(t.Context(), "k", nil); err == nil {
			t.Error("a nil load is no error")
		}
	})
}

// In a load that holds the only slot, a Refresh that joins one which was begun behind its back does
// without a slot.
func TestRefreshInsideALoadWithTheOnlySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{
				TTL: time.Second, StaleWhileRevalidate: time.Hour, MaxLoads: 1})
		if err := c.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		outer := getting(t.Context(), t, c, "outer", func(ctx context.Context) (string, error) {
			if v, err := c.Get(ctx, "k", returning("new")); v != "old" || err != nil {
				t.Errorf("the stale value: %q, %v", v, err)
			}
			time.Sleep(time.Millisecond) // its refresh waits for a slot
			return c.Refresh(ctx, "k", returning("new"))
		})
		if v, err := outer.later(); v != "new" || err != nil || outer.took > 2*time.Millisecond {
			t.Errorf("%q, %v after %v", v, err, outer.took)
		}
	})
}

// A Refresh that joins an early refresh of the local tier's old value gets what is loaded, not what
// was stored long before.
func TestRefreshLoadsBesideAnEarlyRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &gatedLease{Store: shared}
		opts := cacheguard.Options[int]{Name: "edge", TTL: time.Minute, EarlyRefresh: 1000}
		b := openOn(t, cacheguard.Store(shared), opts)
		opts.Local.Entries = 10
		a := openOn(t, cacheguard.Store(store), opts)
		var origin atomic.Int32
		origin.Store(1)
		load := func(ctx context.Context) (int, error) {
			time.Sleep(100 * time.Millisecond)
			return int(origin.Load()), nil
		}
		if v, err := a.Get(t.Context(), "k", load); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		origin.Store(2)
		if v, err := b.Refresh(t.Context(), "k", load); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		time.Sleep(20 * time.Second)
		gate := make(chan struct{})
		store.gate.Store(&gate)
		for range 100 { // local hits; one of them wins the lot
			if v, err := a.Get(t.Context(), "k", load); v != 1 || err != nil {
				t.Fatal(v, err)
			}
		}
		synctest.Wait()
		origin.Store(3) // the origin changes, and then somebody asks for a refresh
		r := beginCall(t, func() (int, error) { return a.Refresh(t.Context(), "k", load) })
		synctest.Wait()
		close(gate)
		r.later()
		r.gives(3, nil)
	})
}

// If a Refresh joins a background refresh, MaxWaiters counts only the caller of Refresh.
func TestRefreshBesideABackgroundOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{
				TTL: time.Second, StaleWhileRevalidate: time.Hour, MaxWaiters: 1,
			})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		o := &versions{took: time.Second}
		at(t, c, o.load)
		synctest.Wait()
		if v, err := c.Refresh(t.Context(), "k", o.load); v != 1 || err != nil {
			t.Errorf("the only caller: %v, %v", v, err)
		}
	})
}
