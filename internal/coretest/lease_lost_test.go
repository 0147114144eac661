package coretest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestKeyThatChangesFasterThanItLoads still answers, in the process that loads and in those that
// wait for it.
func TestKeyThatChangesFasterThanItLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const load, change = 10 * time.Second, time.Second
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{LoadTimeout: time.Minute}
		here, there, changing := openOn(t, store, opts), openOn(t, store, opts),
			openOn(t, store, opts)
		slow := func(context.Context) (string, error) { <-time.After(load); return "v", nil }
		var calls []*begun[string]
		for range 3 {
			for _, c := range []*cacheguard.Cache[string]{here, there} {
				calls = append(calls, getting(t.Context(), t, c, "k", slow))
			}
			<-time.After(change / 2)
		}
		for range 5 * int(load/change) {
			<-time.After(change)
			if err := changing.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		for i, call := range calls {
			if v, err := call.now(); v != "v" || err != nil {
				t.Errorf("caller %d got %q, %v", i, v, err)
			}
			if call.took > 2*load { // a few changes, and then a load that nothing stops
				t.Errorf("caller %d got it after %v", i, call.took)
			}
		}
		if r, err := here.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
			t.Errorf("Peek: %+v, %v; want nothing", r, err)
		}
	})
}

// stolen makes the next renewal find that another load has the lease, as after a long stop of this
// process.
func stolen(
	t *testing.T, store *tampered, by *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
) (thief *begun[string]) {
	t.Helper()
	renewing := make(chan struct{})
	store.onto("Renew", func(context.Context) error { <-renewing; return nil })
	thief = getting(t.Context(), t, by, "k", load)
	// The lease is over, and the one who waited for it asks again.
	<-time.After(3*time.Second + 100*time.Millisecond)
	store.onto("Renew", nil)
	close(renewing)
	synctest.Wait()
	return thief
}

// TestLeaseLostToAnotherLoad: the load is told why it is cancelled, and its callers follow the one
// that has the lease.
func TestLeaseLostToAnotherLoad(t *testing.T) {
	for _, result := range []string{"value", "error", "not found"} {
		for _, kind := range []string{"load", "stubborn load"} {
			inBubble(t, result+"/"+kind, func(t *testing.T) {
				store := newTampered()
				c, other := openOn(t, store, cacheguard.Options[string]{}),
					openOn(t, store.Store, cacheguard.Options[string]{})
				o, elsewhere := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
				fn := o.load
				if kind != "load" {
					fn = o.stubborn
				}
				leader := getting(t.Context(), t, c, "k", fn)
				lost := o.next()
				joiner := getting(t.Context(), t, c, "k", fn)
				joiner.waits()
				thief := stolen(t, store, other, elsewhere.load)
				young := elsewhere.next()
				if !lost.cancelled() || context.Cause(lost.ctx) != cacheguard.ErrLeaseLost {
					t.Fatalf("the load's context has the cause %v; want %v",
						context.Cause(lost.ctx), cacheguard.ErrLeaseLost)
				}
				callers := []*begun[string]{leader, joiner, getting(t.Context(), t, c, "k", fn)}
				for _, caller := range callers {
					caller.waits()
				}
				if kind != "load" {
					lost.gives("lost")
				}
				o.idle()
				switch result {
				case "value":
					young.gives("v")
					thief.gives("v", nil)
					for _, caller := range callers {
						caller.gives("v", nil)
					}
				case "not found":
					young.fails(cacheguard.ErrNotFound)
					for _, caller := range callers {
						caller.gives("", cacheguard.ErrNotFound)
					}
				case "error":
					young.fails(errOrigin)
					thief.gives("", errOrigin)
					for _, caller := range callers {
						_, err := caller.now()
						isLoadError(t, err, errOrigin.Error())
					}
				}
				o.loads(1)
				slotsAreFree(t, c, 64)
			})
		}
	}
}

// TestLeaseLostAgainAndAgain ends in a load without one. Nobody sees ErrLeaseLost.
func TestLeaseLostAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, &robbed{tampered: store}, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, c, "k", o.load)
		for range 3 {
			load := o.next()
			<-load.ctx.Done()
			if cause := context.Cause(load.ctx); cause != cacheguard.ErrLeaseLost {
				t.Errorf("the cause is %v; want %v", cause, cacheguard.ErrLeaseLost)
			}
		}
		load := o.next()
		<-time.After(10 * time.Second)
		leader.waits()
		load.gives("v")
		leader.gives("v", nil)
		o.loads(4)
	})
}

// robbed is a store in which no load keeps its lease: each renewal is told that another load has
// the lease.
type robbed struct{ *tampered }

func (s *robbed) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	if err := s.Release(ctx, k, g.Token); err != nil {
		return 0, err
	}
	return cacheguard.HoldingOther, nil
}

// TestResultOfALostLease: a load returns a result although it has lost its lease. The result goes
// to the waiting callers, and is not stored.
func TestResultOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store.Store, cacheguard.Options[string]{})
		o, elsewhere := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		store.onto("Renew", fails(always))
		leader := getting(t.Context(), t, c, "k", o.load)
		old := o.next()
		thief := getting(t.Context(), t, other, "k", elsewhere.load)
		<-time.After(3*time.Second + 100*time.Millisecond)
		young := elsewhere.next()
		newcomer := getting(t.Context(), t, c, "k", o.load)
		newcomer.waits()
		old.gives("old")
		leader.gives("old", nil)
		newcomer.waits()
		young.gives("new")
		thief.gives("new", nil)
		newcomer.gives("new", nil)
		getting(t.Context(), t, c, "k", o.load).gives("new", nil)
		o.loads(1)
	})
}

// TestLeaseThatIsGone, evicted by the store: the load goes on for those who wait, nobody joins it
// once that is noticed, and it stores nothing. There is at most one more.
func TestLeaseThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, c, "k", o.load)
		old := o.next()
		if err := store.Release(t.Context(), cacheguard.Key{Cache: "behave", Key: "k"},
			store.granted()); err != nil {
			t.Fatal(err)
		}
		joiner := getting(t.Context(), t, c, "k", o.load)
		o.idle()
		<-time.After(time.Second + time.Millisecond) // until it is renewed
		newcomer := getting(t.Context(), t, c, "k", o.load)
		young := o.next()
		if old.cancelled() {
			t.Error("the load was cancelled")
		}
		old.gives("old")
		leader.gives("old", nil)
		joiner.gives("old", nil)
		newcomer.waits()
		young.gives("new")
		newcomer.gives("new", nil)
		getting(t.Context(), t, c, "k", o.load).gives("new", nil)
		o.loads(2)
	})
}
