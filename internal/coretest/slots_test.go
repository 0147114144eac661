package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestMaxLoads: further loads wait, and begin in the order in which they came.
func TestMaxLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{MaxLoads: 3})
		o := newScriptedOrigin[string](t)
		keyOf := func(load *scriptedLoad[string]) string {
			return load.ctx.Value(contextKey{}).(string)
		}
		var calls []*begun[string]
		for i := range 10 {
			key := fmt.Sprint(i)
			ctx := context.WithValue(t.Context(), contextKey{}, key)
			calls = append(calls, getting(ctx, t, c, key, o.load))
			synctest.Wait()
		}
		for i, call := range calls {
			o.loads(min(i+3, len(calls)))
			load := o.next()
			if key := keyOf(load); key != fmt.Sprint(i) {
				t.Fatalf("load %d is that of %s", i, key)
			}
			call.waits()
			load.gives("v")
			call.gives("v", nil)
		}
	})
}

// TestFullQueue: if the queue is full, the next load is refused at once, without a request for a
// lease. Callers that wait for a running load are not in the queue.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(1, 2)})
		o := newScriptedOrigin[string](t)
		running := getting(t.Context(), t, c, "running", o.load)
		load := o.next()
		var queued []*begun[string]
		for _, key := range []string{"a", "b"} {
			queued = append(queued, getting(t.Context(), t, c, key, o.load))
			synctest.Wait()
		}
		asked := store.steps("Lease")
		getting(t.Context(), t, c, "c", o.load).gives("", cacheguard.ErrOverloaded)
		if n := store.steps("Lease") - asked; n != 0 {
			t.Errorf("a load that was turned away asked for the lease %d times", n)
		}
		joiner := getting(t.Context(), t, c, "running", o.load)
		joiner.waits()
		load.gives("v")
		joiner.gives("v", nil)
		running.gives("v", nil)
		for _, call := range queued {
			o.next().gives("v")
			call.gives("v", nil)
		}
		getting(t.Context(), t, c, "c", returning("v")).gives("v", nil)
	})
}

// TestQueueOfMaxLoads is 64 for each slot.
func TestQueueOfMaxLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{MaxLoads: 2})
		o := newScriptedOrigin[string](t)
		var calls []*begun[string]
		for i := range 2 + 2*64 {
			calls = append(calls, getting(t.Context(), t, c, fmt.Sprint(i), o.load))
		}
		for _, call := range calls {
			call.waits()
		}
		getting(t.Context(), t, c, "one more", o.load).gives("", cacheguard.ErrOverloaded)
		o.loads(2)
	})
}

// TestWaitForASlot ends after LoadTimeout.
func TestWaitForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := cacheguard.NewLimiter(1, 10)
		store := memstore.New(memstore.Options{})
		slow := openOn(t, store,
			cacheguard.Options[string]{Name: "slow", Limiter: limiter, LoadTimeout: time.Minute})
		c := openOn(t, store,
			cacheguard.Options[string]{Limiter: limiter, LoadTimeout: 5 * time.Second})
		o := newScriptedOrigin[string](t)
		running := getting(t.Context(), t, slow, "k", o.load)
		load := o.next()
		waiting := getting(t.Context(), t, c, "k", o.load)
		if _, err := waiting.later(); !errors.Is(err, cacheguard.ErrOverloaded) ||
			waiting.took != 5*time.Second {
			t.Errorf("the call returned %v after %v; want %v after 5s", err, waiting.took,
				cacheguard.ErrOverloaded)
		}
		load.gives("v")
		running.gives("v", nil)
		getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
	})
}

// TestLeavingTheQueue gives no slot away and takes none along, also at the moment in which it would
// have got one.
func TestLeavingTheQueue(t *testing.T) {
	for round := range 20 {
		inBubble(t, fmt.Sprint(round), func(t *testing.T) {
			c := openOn(t, memstore.New(memstore.Options{}),
				cacheguard.Options[string]{MaxLoads: 1})
			o := newScriptedOrigin[string](t)
			running := getting(t.Context(), t, c, "running", o.load)
			load := o.next()
			ctx, leave := context.WithCancel(t.Context())
			leaver := getting(ctx, t, c, "leaver", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
			leaver.waits()
			patient := getting(t.Context(), t, c, "patient", o.load)
			patient.waits()
			if round%2 == 0 { // both at once
				load.gives("v")
				leave()
			} else {
				leave()
				leaver.gives("", context.Canceled)
				o.idle()
				load.gives("v")
			}
			running.gives("v", nil)
			leaver.gives("", context.Canceled)
			o.next().gives("v")
			patient.gives("v", nil)
			slotsAreFree(t, c, 1)
		})
	}
}

// TestLeavingTheQueueUnderLoad is the same with real goroutines: those who wait are told to leave
// as the slot is given back, a little sooner or later.
func TestLeavingTheQueueUnderLoad(t *testing.T) {
	c := openOn(t, memstore.New(memstore.Options{}),
		cacheguard.Options[string]{MaxLoads: 1, LoadTimeout: 10 * time.Second})
	for round := range 300 {
		ctx, leave := context.WithCancel(t.Context())
		started, proceed := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Get(t.Context(), fmt.Sprint("running ", round), func(
				context.Context,
			) (string, error) {
				close(started)
				<-proceed
				return "v", nil
			}); err != nil {
				t.Errorf("Get: %v", err)
			}
		})
		<-started
		for i := range 4 {
			all.Go(func() {
				_, err := c.Get(ctx, fmt.Sprint("leaver ", round, i), returning("v"))
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the one who left got %v", err)
				}
			})
		}
		for range round % 50 {
			runtime.Gosched()
		}
		all.Go(leave)
		for range round % 7 {
			runtime.Gosched()
		}
		close(proceed)
		all.Wait()
		if v, err := c.Get(t.Context(), fmt.Sprint("next ", round), returning("v")); v != "v" ||
			err != nil {
			t.Fatalf("round %d: %q, %v; want the slot to be free", round, v, err)
		}
	}
}

// TestMaxWaiters: a caller above the limit of a key is turned away. Other keys are not affected.
func TestMaxWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{MaxWaiters: 3})
		o := newScriptedOrigin[string](t)
		ctx, leave := context.WithCancel(t.Context())
		first := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		second, third := getting(t.Context(), t, c, "k", o.load), getting(ctx, t, c, "k", o.load)
		second.waits()
		third.waits()
		getting(t.Context(), t, c, "k", o.load).gives("", cacheguard.ErrOverloaded)
		getting(t.Context(), t, c, "other", returning("v")).gives("v", nil)
		leave()
		third.gives("", context.Canceled)
		fourth := getting(t.Context(), t, c, "k", o.load)
		fourth.waits()
		load.gives("v")
		for _, call := range []*begun[string]{first, second, fourth} {
			call.gives("v", nil)
		}
		refreshing := beginCall(t, func() (string, error) {
			return c.Refresh(t.Context(), "k", o.load)
		})
		load = o.next()
		for range 2 {
			beginCall(t, func() (string, error) {
				return c.Refresh(t.Context(), "k", o.load)
			}).waits()
		}
		beginCall(t, func() (string, error) {
			return c.Refresh(t.Context(), "k", o.load)
		}).gives("", cacheguard.ErrOverloaded)
		load.gives("w")
		refreshing.gives("w", nil)
	})
}

// TestNoSlotWhileFollowing: two processes with a slot each, and each one's load needs what the
// other one loads.
func TestNoSlotWhileFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{MaxLoads: 1}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[string](t)
		a := getting(t.Context(), t, here, "a", o.load)
		loadA := o.next()
		b := getting(t.Context(), t, there, "b", o.load)
		loadB := o.next()
		bHere := getting(t.Context(), t, here, "b", o.load)
		aThere := getting(t.Context(), t, there, "a", o.load)
		loadA.gives("a")
		loadB.gives("b")
		for _, call := range []*begun[string]{a, aThere} {
			call.gives("a", nil)
		}
		for _, call := range []*begun[string]{b, bHere} {
			call.gives("b", nil)
		}

		// A flight that follows leaves the slot to others.
		k := getting(t.Context(), t, there, "k", o.load)
		loadK := o.next()
		follower := getting(t.Context(), t, here, "k", o.load)
		follower.waits()
		getting(t.Context(), t, here, "c", returning("c")).gives("c", nil)
		loadK.gives("k")
		k.gives("k", nil)
		follower.gives("k", nil)
		o.loads(3)
	})
}

// TestAbandonedLoadKeepsItsSlot until it returns: the origin still works for it.
func TestAbandonedLoadKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{MaxLoads: 1})
		o := newScriptedOrigin[string](t)
		ctx, leave := context.WithCancel(t.Context())
		leaver := getting(ctx, t, c, "k", o.stubborn)
		load := o.next()
		leave()
		leaver.gives("", context.Canceled)
		next := getting(t.Context(), t, c, "next", o.load)
		o.idle()
		load.gives("late")
		o.next().gives("v")
		next.gives("v", nil)
	})
}

// TestLoadsOfAnUpdate: a write is no load and needs no slot, so what is loaded inside it needs one.
func TestLoadsOfAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{MaxLoads: 1})
		o := newScriptedOrigin[string](t)
		running := getting(t.Context(), t, c, "running", o.load)
		load := o.next()
		update := beginCall(t, func() (string, error) {
			return c.Update(t.Context(), "k", func(ctx context.Context) (string, error) {
				return c.Get(ctx, "nested", o.load)
			})
		})
		update.waits()
		o.idle()
		load.gives("v")
		running.gives("v", nil)
		o.next().gives("w")
		update.gives("w", nil)
	})
}

// TestMaxLoadsUnderLoad counts with real goroutines.
func TestMaxLoadsUnderLoad(t *testing.T) {
	const most = 3
	store := memstore.New(memstore.Options{})
	c := openOn(t, store, cacheguard.Options[string]{
		Limiter: cacheguard.NewLimiter(most, 1000), LoadTimeout: 10 * time.Minute,
	})
	var running, high, failed atomic.Int32
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := c.Get(ctx, fmt.Sprint(i), func(ctx context.Context) (string, error) {
				now := running.Add(1)
				for was := high.Load(); now > was &&
					!high.CompareAndSwap(was, now); was = high.Load() {
				}
				defer running.Add(-1)
				if i%3 == 0 {
					cancel()
				}
				return c.Get(ctx, fmt.Sprint("nested ", i%7), returning("v"))
			})
			if err != nil && !(i%3 == 0 && errors.Is(err, context.Canceled)) {
				failed.Add(1)
				t.Errorf("Get %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := high.Load(); n > most {
		t.Errorf("%d loads ran at the same time; want at most %d", n, most)
	}
}

func TestLimiterHasASlotAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limiter := range []*cacheguard.Limiter{
			cacheguard.NewLimiter(0, 0), cacheguard.NewLimiter(-5, -5),
		} {
			c := openOn(t, memstore.New(memstore.Options{}),
				cacheguard.Options[string]{Limiter: limiter})
			getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
		}
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{MaxLoads: -1, MaxWaiters: -1})
		slotsAreFree(t, c, 500)
	})
}

// A load that goes on after SoftTimeout, and ran on its parent's slot, counts when that is given
// back.
func TestLoadPastSoftTimeoutKeepsToMaxLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{
				TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond,
				MaxLoads: 1,
			})[0]
		for i := range 10 {
			if err := c.Set(t.Context(), fmt.Sprint("inner", i), 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		o := ones(t, 10*time.Second)
		for i := range 10 {
			_, err := c.Get(t.Context(), fmt.Sprint("outer", i), func(
				ctx context.Context,
			) (int, error) {
				return c.Get(ctx, fmt.Sprint("inner", i), o.Load("inner"))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := o.MostRunning(); n > 1 {
			t.Errorf("%d loads at a time with MaxLoads 1", n)
		}
	})
}

// Only callers count as waiters, not the work that holds its own flight.
func TestMaxWaitersCountsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{
				TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond,
				MaxWaiters: 1,
			})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		o := &versions{took: time.Second}
		for i := range 3 { // one after another
			if v, err := c.Get(t.Context(), "k", o.load); v != 1 || err != nil {
				t.Errorf("call %d, of which there is one at a time: %v, %v", i, v, err)
			}
		}
	})
}

// Refreshes in the background take half of the places in the queue at most.
func TestBackgroundLoadsLeaveHalfOfTheQueue(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})), cacheguard.Options[int]{
			TTL: time.Second, StaleWhileRevalidate: time.Hour, Limiter: cacheguard.NewLimiter(1, 4),
		})
		time.Sleep(time.Millisecond)
		keys := []string{"a", "b", "c", "d", "e"}
		for _, key := range keys {
			getting(t.Context(), t, c, key, returning(1)).gives(1, nil)
		}
		time.Sleep(2 * time.Second)
		gate := make(chan struct{})
		for _, key := range keys { // five refreshes: one has the slot
			getting(t.Context(), t, c, key, func(context.Context) (int, error) {
				<-gate
				return 2, nil
			}).gives(1, nil)
		}
		synctest.Wait()
		if n := c.Stats().LoadsQueued; n != 2 {
			t.Errorf("%d refreshes wait in a queue of 4; want 2", n)
		}
		close(gate)
	})
}
