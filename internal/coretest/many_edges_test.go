package coretest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// If Close comes while GetMany reads the store, the call ends with ErrClosed.
func TestGetManyMeetsClose(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[string]{
		"plain": {},
		"soft":  {TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: time.Millisecond},
	} {
		inBubble(t, name, func(t *testing.T) {
			store, o := newTampered(), newBulk(t)
			gate := make(chan struct{})
			c := openOn(t, cacheguard.Store(store), opts)
			store.onto("GetMany", func(context.Context) error { <-gate; return nil })
			call := getMany(t.Context(), t, c, o, "a", "b")
			call.waits()
			must(t, c.Close())
			close(gate)
			select {
			case <-call.done:
				if _, err := call.now(); !errors.Is(err, cacheguard.ErrClosed) {
					t.Errorf("got %v, want ErrClosed", err)
				}
			case <-time.After(time.Hour):
				t.Error("an hour after Close, GetMany still waits")
			}
		})
	}
}

// The same with Shutdown, which lets calls that are under way finish.
func TestGetManyMeetsShutdown(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store, o := newTampered(), newBulk(t)
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		gate := make(chan struct{})
		store.onto("GetMany", func(context.Context) error { <-gate; return nil })
		call := getMany(t.Context(), t, c, o, "a", "b")
		call.waits()
		must(t, c.Shutdown(t.Context()))
		close(gate)
		select {
		case <-call.done:
		case <-time.After(time.Hour):
			t.Error("an hour after Shutdown, GetMany still waits")
		}
	})
}

// privately is a load of many keys that takes a second, whose results are for its own caller.
func privately(
	loads *atomic.Int32, name string,
) func(context.Context, []string) (map[string]entry, error) {
	return func(_ context.Context, missing []string) (map[string]entry, error) {
		loads.Add(1)
		time.Sleep(time.Second)
		all := map[string]entry{}
		for _, key := range missing {
			all[key] = entry{Value: name, NoShare: true, TTL: time.Minute}
		}
		return all, nil
	}
}

// In hit-for-miss, calls of GetMany don't wait for each other, and each of them loads all its keys
// at once. Calls that come before the first result wait for it, and then do the same.
func TestGetManyInHitForMiss(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for name, known := range map[string]bool{"remembered": true, "not yet known": false} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			here, there := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{}),
				openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
			var loads atomic.Int32
			most := 2 * time.Second
			if known {
				if _, err := here.GetManyEntries(t.Context(), keys,
					privately(&loads, "first")); err != nil {
					t.Fatal(err)
				}
				loads.Store(0)
				most = time.Second
			}
			calls := map[string]*begun[map[string]cacheguard.Result[string]]{}
			for name, c := range map[string]*cacheguard.Cache[string]{
				"1": here, "2": here, "3": there, "4": there,
			} {
				calls[name] = beginCall(t, func() (map[string]cacheguard.Result[string], error) {
					return c.GetManyEntries(t.Context(), keys, privately(&loads, name))
				})
				synctest.Wait()
			}
			var one atomic.Int32
			single := gettingEntry(t.Context(), t, here, "a", private(&one, "single"))
			for name, call := range calls {
				got, err := call.later()
				for _, key := range keys {
					if got[key].Value != name {
						t.Errorf("%s: %s is %+v, %v", name, key, got[key], err)
					}
				}
				if call.took > most+100*time.Millisecond {
					t.Errorf("%s took %v; want %v", name, call.took, most)
				}
			}
			if n := loads.Load(); n != 4 {
				t.Errorf("%d loads for 4 calls", n)
			}
			if r, err := single.later(); r.Value != "single" || err != nil ||
				single.took > most+100*time.Millisecond {
				t.Errorf("Get beside them: %+v, %v after %v", r, err, single.took)
			}
		})
	}
}

// GetMany with a token takes a value that another call has refreshed in the meantime.
func TestGetManyWithATokenLooksAgain(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store, o := newTampered(), newBulk(t)
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		must(t, c.Set(t.Context(), "a", "a old"))
		ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
		many := getMany(ctx, t, c, o, "a", "b")
		load := o.next("b")
		getting(ctx, t, c, "a", returning("a new")).gives("a new", nil)
		load.gives(" new")
		synctest.Wait()
		o.none()
		if !many.returned() {
			for len(o.begin) > 0 {
				(<-o.begin).gives(" again")
			}
		}
		if !many.returned() {
			select {
			case l := <-o.begin:
				l.gives(" again")
			default:
			}
		}
		many.later()
	})
}

// In shadow, a Refresh doesn't join a GetMany with a token, because that has no lease and stores
// nothing.
func TestRefreshBesideGetManyInShadow(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store, sw := newTampered(), new(cacheguard.Switch)
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{Switch: sw})
		other := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		must(t, other.Set(t.Context(), "k", "k0"))
		turn(t, sw, cacheguard.ModeShadow)
		single, o := newScriptedOrigin[string](t), newBulk(t)
		early := getting(t.Context(), t, c, "k", single.load)
		l1 := single.next()
		ctx := cacheguard.NotOlderThan(t.Context(), committed(t, store, "behave"))
		many := getMany(ctx, t, c, o, "k")
		many.waits()
		l1.gives("k1")
		early.gives("k1", nil)
		l2 := o.next("k")
		refresh := refreshing(t.Context(), t, c, single.load)
		synctest.Wait()
		var l3 *scriptedLoad[string]
		if len(single.visits) > 0 {
			l3 = single.next()
		}
		l2.gives("2")
		if l3 != nil {
			l3.gives("k3")
		}
		v, err := refresh.later()
		many.later()
		synctest.Wait()
		if r, peekErr := other.Peek(t.Context(), "k"); err != nil || peekErr != nil ||
			r.Value != v {
			t.Errorf("Refresh gave %q, %v; stored is %+v, %v", v, err, r, peekErr)
		}
	})
}

// With StrongReads GetMany answers in bounded time, however often its keys are changed.
func TestStrongGetManyUnderChanges(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{StrongReads: true})
		other := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
		var loads atomic.Int32
		load := func(_ context.Context, missing []string) (map[string]string, error) {
			loads.Add(1)
			time.Sleep(10 * time.Millisecond)
			all := map[string]string{}
			for _, key := range missing {
				all[key] = key + "v"
			}
			return all, nil
		}
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
					_ = other.Invalidate(context.Background(), "a", "b", "c", "d")
				}
			}
		}()
		var calls []*begun[map[string]string]
		for range 20 {
			calls = append(calls, beginCall(t, func() (map[string]string, error) {
				return c.GetMany(t.Context(), []string{"a", "b", "c", "d"}, load)
			}))
			time.Sleep(time.Millisecond)
		}
		for _, call := range calls {
			got, err := call.later()
			if len(got) != 4 || err != nil || call.took > 500*time.Millisecond {
				t.Errorf("got %d, %v after %v", len(got), err, call.took)
			}
		}
		close(stop)
		time.Sleep(time.Second)
		t.Logf("%d loads", loads.Load())
	})
}

// A key that is named twice is one caller of its load, in each mode.
func TestGetManyOfOneKeyTwice(t *testing.T) {
	for _, mode := range []cacheguard.Mode{
		cacheguard.ModeOn, cacheguard.ModeOff, cacheguard.ModeShadow,
	} {
		inBubble(t, mode.String(), func(t *testing.T) {
			var s cacheguard.Switch
			must(t, s.Set(mode))
			c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
				cacheguard.Options[string]{MaxWaiters: 1, Switch: &s})
			got, err := c.GetMany(t.Context(), []string{"k", "k"}, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				if len(missing) != 1 {
					t.Errorf("the load is for %q", missing)
				}
				return map[string]string{"k": "v"}, nil
			})
			if err != nil || len(got) != 1 || got["k"] != "v" {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
