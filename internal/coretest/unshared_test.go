package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// private is a load of one second whose result is for its own caller, which is remembered for a
// minute.
func private(loads *atomic.Int32, name string) cacheguard.LoadFunc[entry] {
	return func(context.Context) (entry, error) {
		loads.Add(1)
		<-time.After(time.Second)
		return entry{Value: name, NoShare: true, TTL: time.Minute}, nil
	}
}

// TestNoShareIsRemembered (hit-for-miss): waiting callers load for themselves at once, in every
// process, and later callers don't wait for other loads.
func TestNoShareIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		var loads atomic.Int32
		round := func(what string, most time.Duration) {
			t.Helper()
			calls := map[string]*begun[cacheguard.Result[string]]{}
			for i := range 8 {
				name := fmt.Sprintf("%s %d", what, i)
				calls[name] = gettingEntry(t.Context(), t,
					[]*cacheguard.Cache[string]{here, there}[i%2], "k", private(&loads, name))
			}
			for name, call := range calls {
				if r, err := call.later(); r.Value != name || err != nil ||
					r.Status != cacheguard.StatusLoaded {
					t.Errorf("%s got %+v, %v", name, r, err)
				}
				if call.took > most+10*time.Millisecond {
					t.Errorf("%s got it after %v; want %v", name, call.took, most)
				}
			}
			if n := loads.Swap(0); n != 8 {
				t.Errorf("%s: %d loads; want one for each caller", what, n)
			}
		}
		round("first", 2*time.Second)
		round("second", time.Second)
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			if r, err := c.Peek(t.Context(), "k"); r != (cacheguard.Result[string]{}) ||
				err != nil {
				t.Errorf("Peek: %+v, %v", r, err)
			}
		}
		<-time.After(2 * time.Minute)
		round("forgotten", 2*time.Second)
		if err := here.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		round("invalidated", 2*time.Second)
	})
}

// TestNoShareEndsWithTheFirstSharedResult, of the one call that has the lease; the others store
// nothing.
func TestNoShareEndsWithTheFirstSharedResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		var loads atomic.Int32
		if _, err := here.GetEntry(t.Context(), "k", entries(private(&loads, "mine"))); err != nil {
			t.Fatal(err)
		}
		o := newScriptedOrigin[entry](t)
		first := gettingEntry(t.Context(), t, here, "k", o.load)
		leads := o.next()
		second := gettingEntry(t.Context(), t, there, "k", o.load)
		follows := o.next()
		follows.gives(entry{Value: "stored by nobody"})
		if r, err := second.now(); r.Value != "stored by nobody" || err != nil {
			t.Errorf("the second call got %+v, %v", r, err)
		}
		if r, _ := there.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss {
			t.Errorf("a call without the lease stored %+v", r)
		}
		leads.gives(entry{Value: "for all"})
		first.now()
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			if r, err := c.GetEntry(t.Context(), "k",
				entries(private(&loads, "unexpected"))); r.Value != "for all" ||
				r.Status != cacheguard.StatusHit || err != nil {
				t.Errorf("got %+v, %v", r, err)
			}
		}
	})
}

// P3: what such a call loads is not stored after an Invalidate that came during the load.
func TestNoShareThenInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		var loads atomic.Int32
		if _, err := c.GetEntry(t.Context(), "k", entries(private(&loads, "mine"))); err != nil {
			t.Fatal(err)
		}
		o := newScriptedOrigin[entry](t)
		call := gettingEntry(t.Context(), t, c, "k", o.load)
		load := o.next()
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		load.gives(entry{Value: "old"})
		if r, err := call.now(); r.Value != "old" || err != nil {
			t.Errorf("the call got %+v, %v", r, err)
		}
		if r, _ := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss {
			t.Errorf("there is %+v", r)
		}
	})
}

// TestNoShareKeeps: if a load sets Keep, later loads see its unshared value. Callers don't see it.
func TestNoShareKeeps(t *testing.T) {
	for name, keep := range map[string]time.Duration{"kept": time.Hour, "not kept": 0} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{
				Local: cacheguard.Local[string]{Entries: 10}, StaleIfError: time.Hour,
			})
			loads := 0
			load := func(
				_ context.Context, prev cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				loads++
				want := cacheguard.Result[string]{}
				if loads > 1 && keep > 0 {
					want = cacheguard.Result[string]{
						Value: fmt.Sprint(loads - 1), Status: cacheguard.StatusStale,
					}
				}
				if prev.Value != want.Value || prev.Status != want.Status || prev.NotFound ||
					prev.UsableFor != 0 {
					t.Errorf("load %d sees %+v; want %+v", loads, prev, want)
				}
				if loads == 4 {
					return cacheguard.Entry[string]{}, errOrigin
				}
				return cacheguard.Entry[string]{
					Value: fmt.Sprint(loads), NoShare: true, TTL: time.Minute, Keep: keep,
				}, nil
			}
			for i := range 3 {
				if r, err := c.GetEntry(t.Context(), "k", load); r.Value != fmt.Sprint(i+1) ||
					err != nil {
					t.Errorf("call %d: %+v, %v", i, r, err)
				}
				if i == 1 {
					<-time.After(2 * time.Minute) // no longer remembered
				}
			}
			if r, err := c.GetEntry(t.Context(), "k", load); !errors.Is(err, errOrigin) ||
				r.Value != "" {
				t.Errorf("after a failed load: %+v, %v", r, err)
			}
			if r, err := c.Peek(t.Context(), "k"); r != (cacheguard.Result[string]{}) ||
				err != nil {
				t.Errorf("Peek: %+v, %v", r, err)
			}
		})
	}
}

// TestGetManyMeetsNoShare loads for itself what is not shared, also when that turns out while it
// waits.
func TestGetManyMeetsNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		var loads atomic.Int32
		one := gettingEntry(t.Context(), t, here, "a", private(&loads, "mine"))
		one.waits()
		for _, c := range []*cacheguard.Cache[string]{there, here, there} {
			got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				values := map[string]string{}
				for _, key := range missing {
					values[key] = "of many"
				}
				return values, nil
			})
			if err != nil || got["a"] != "of many" || got["b"] != "of many" {
				t.Errorf("got %v, %v", got, err)
			}
		}
		one.later()
	})
}

// A result that is not shared and leaves what is stored goes to its own caller, and everybody else
// has what was there.
func TestLeaveStored(t *testing.T) {
	for name, local := range map[string]cacheguard.Local[string]{
		"store": {}, "local tier": {Entries: 10},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer func() { _ = store.Close() }()
			c, err := cacheguard.New(store, cacheguard.Options[string]{Name: "page", Local: local})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ctx := t.Context()
			if err := c.Set(ctx, "k", "for all"); err != nil {
				t.Fatal(err)
			}
			never := func(context.Context) (string, error) { t.Error("loaded"); return "", nil }
			if v, err := c.Get(ctx, "k", never); v != "for all" || err != nil {
				t.Fatal(v, err)
			}
			got, err := c.RefreshEntry(ctx, "k", func(
				context.Context, cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				return cacheguard.Entry[string]{Value: "for one", NoShare: true, LeaveStored: true},
					nil
			})
			if got.Value != "for one" || err != nil {
				t.Error(got, err)
			}
			if v, err := c.Get(ctx, "k", never); v != "for all" || err != nil {
				t.Error(v, err)
			}
		})
	}
}

// TestNoShare has everybody who waits load for themselves, at the same time: nobody sees what
// another one got.
func TestNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		slow := func(name string) cacheguard.LoadFunc[entry] {
			return func(ctx context.Context) (entry, error) {
				if ctx.Value(contextKey{}) != name {
					t.Errorf("the load of %s has the context of %v", name, ctx.Value(contextKey{}))
				}
				<-time.After(time.Second)
				return entry{Value: name, NoShare: true}, nil
			}
		}
		calls := map[string]*begun[cacheguard.Result[string]]{}
		for name, c := range map[string]*cacheguard.Cache[string]{
			"a": here, "b": here, "c": here, "d": there, "e": there, "f": there,
		} {
			ctx := context.WithValue(t.Context(), contextKey{}, name)
			calls[name] = gettingEntry(ctx, t, c, "k", slow(name))
		}
		for name, call := range calls {
			if r, err := call.later(); r.Value != name || err != nil ||
				r.Status != cacheguard.StatusLoaded {
				t.Errorf("%s got %+v, %v", name, r, err)
			}
			// The leader's load, that of the other process, those of its callers.
			if call.took > 3*time.Second {
				t.Errorf("%s got it after %v: one load after another", name, call.took)
			}
		}
		if r, err := there.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
			t.Errorf("Peek: %+v, %v", r, err)
		}
	})
}

// TestNoShareKeepsToTheBounds: those who load for themselves are loads like others.
func TestNoShareKeepsToTheBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{MaxLoads: 2, LoadTimeout: 10 * time.Second})
		o := newScriptedOrigin[entry](t)
		leader := gettingEntry(t.Context(), t, c, "k", o.load)
		first := o.next()
		var others []*begun[cacheguard.Result[string]]
		for range 5 {
			others = append(others, gettingEntry(t.Context(), t, c, "k", o.load))
		}
		ctx, leave := context.WithCancelCause(t.Context())
		leaver := gettingEntry(ctx, t, c, "k", o.load)
		leaver.waits()
		first.gives(entry{Value: "v", NoShare: true})
		leader.now()
		o.loads(1 + 2)
		leave(errors.New("of no concern to the cache"))
		if _, err := leaver.now(); err != context.Canceled {
			t.Errorf("the one who left got %v; want %v", err, context.Canceled)
		}
		var running []*scriptedLoad[entry]
		for range others {
			synctest.Wait()
			for len(o.visits) > 0 {
				running = append(running, o.next())
			}
			running = slices.DeleteFunc(running, func(load *scriptedLoad[entry]) bool {
				return load.ctx.Err() != nil
			})
			if n := len(running); n == 0 || n > 2 {
				t.Fatalf("%d loads at the same time", n)
			}
			running[0].gives(entry{Value: "v", NoShare: true})
			running = running[1:]
		}
		for _, call := range others {
			if r, err := call.now(); r.Value != "v" || err != nil {
				t.Errorf("a caller got %+v, %v", r, err)
			}
		}
		late := gettingEntry(t.Context(), t, c, "k", o.load)
		o.next().gives(entry{Value: "v", NoShare: true})
		late.now()
		slotsAreFree(t, c, 2)
	})
}

// TestUnsharedLoadFails for its own caller.
func TestUnsharedLoadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		o := newScriptedOrigin[entry](t)
		leader := gettingEntry(t.Context(), t, c, "k", o.load)
		first := o.next()
		calls := map[string]*begun[cacheguard.Result[string]]{}
		for name, load := range map[string]cacheguard.LoadFunc[entry]{
			"failed":    failingWith[entry](errOrigin),
			"panicked":  func(context.Context) (entry, error) { panic(errOrigin) },
			"not found": failingWith[entry](cacheguard.ErrNotFound),
			"fine":      returning(entry{Value: "v"}),
		} {
			calls[name] = gettingEntry(t.Context(), t, c, "k", load)
			calls[name].waits()
		}
		first.gives(entry{Value: "mine", NoShare: true})
		if r, err := leader.now(); r.Value != "mine" || err != nil {
			t.Errorf("the leader got %+v, %v", r, err)
		}
		for name, want := range map[string]error{
			"failed": errOrigin, "panicked": errOrigin, "not found": cacheguard.ErrNotFound,
		} {
			if r, err := calls[name].now(); r.Value != "" || !errors.Is(err, want) {
				t.Errorf("%s: %+v, %v; want %v", name, r, err, want)
			}
		}
		if r, err := calls["fine"].now(); r.Value != "v" || err != nil {
			t.Errorf("fine: %+v, %v", r, err)
		}
	})
}
