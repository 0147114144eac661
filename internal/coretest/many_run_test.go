package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// gateObserver holds up the goroutine that reports the end of a wait for this key.
type gateObserver struct {
	guardtest.Recorder
	key  string
	gate chan struct{}
}

func (o *gateObserver) Observe(ctx context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventWaited && e.Key == o.key {
		<-o.gate
	}
	o.Recorder.Observe(ctx, e)
}

// Keys of a batch that come back one after another while there is no slot are asked for together
// when there are some. Each load of theirs has its leases renewed.
func TestGetManyRenewsEachLoad(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, _ *cacheguard.Cache[string], o *bulk,
	) {
		events := &gateObserver{key: "3", gate: make(chan struct{})}
		b := openOn(t, store,
			cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(2, 10), Observer: events})
		leaders, keys := newScriptedOrigin[string](t), []string{"1", "2", "3"}
		leave := make(map[string]func())
		for _, key := range keys {
			var ctx context.Context
			ctx, leave[key] = context.WithCancel(t.Context())
			getting(ctx, t, a, key, leaders.load)
			leaders.next()
		}
		batch := getMany(t.Context(), t, b, o, keys...)
		batch.waits()
		busy := newScriptedOrigin[string](t)
		var running []*scriptedLoad[string]
		for _, key := range []string{"x", "y"} {
			getting(t.Context(), t, b, key, busy.load)
			running = append(running, busy.next())
		}
		for _, key := range keys {
			leave[key]() // the key comes back, and waits for a slot
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		for _, load := range running { // the first two get theirs at once
			load.gives("v")
		}
		synctest.Wait()
		close(events.gate)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := events.Count(cacheguard.EventLeaseLost); n != 0 {
			t.Errorf("%d leases were lost", n)
		}
		for _, key := range keys[:2] {
			if leaseFree(t, store, key) {
				t.Errorf("the lease of %q is over while its load runs", key)
			}
		}
		for range keys {
			(<-o.begin).gives("v")
		}
		wantMany(t, batch, []string{"1v", "2v", "3v"}, nil)
	})
}

// When everybody has left, a place in the queue is given back, also that of a batch of which a part
// has landed.
func TestGetManyLeavesTheQueue(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, _ *cacheguard.Cache[string], o *bulk,
	) {
		b := openOn(t, store, cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(1, 1)})
		single, other := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		getting(t.Context(), t, a, "landed", single.load)
		landed := single.next()
		leader, leave := context.WithCancel(t.Context())
		getting(leader, t, a, "waiting", single.load)
		single.next()
		ctx, leaves := context.WithCancel(t.Context())
		batch := getMany(ctx, t, b, o, "landed", "waiting")
		batch.waits()
		landed.gives("landed v")
		busy := getting(t.Context(), t, b, "busy", other.load)
		running := other.next()
		leave() // what the batch waits for ends, and there is no slot
		time.Sleep(time.Second)
		synctest.Wait()
		getting(t.Context(), t, b, "too many", other.load).gives("", cacheguard.ErrOverloaded)
		leaves()
		batch.later()
		synctest.Wait()
		next := getting(t.Context(), t, b, "next", other.load)
		next.waits()
		running.gives("v")
		busy.gives("v", nil)
		other.next().gives("v")
		next.gives("v", nil)
		o.none()
	})
}

// If loads in other processes don't share their results, a batch loads these keys together, even if
// it learns of this key by key.
func TestGetManyGathersWhatIsLoadedApart(t *testing.T) {
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint(100+i))
	}
	manyBubble(t, cacheguard.Options[string]{MaxValueSize: 5000, MaxLoads: 1}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		first := getMany(t.Context(), t, a, o, keys...)
		load := o.next(keys...)
		second := getMany(t.Context(), t, b, o, keys...)
		second.waits()
		store.onto("Conclude", func(context.Context) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		load.gives(strings.Repeat("x", 10_000))
		first.later()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		again := <-o.begin
		if sorted := slices.Sorted(slices.Values(again.keys)); !slices.Equal(sorted, keys) {
			t.Errorf("the load that takes over is of %d keys", len(again.keys))
		}
		again.gives("v")
		if got, err := second.later(); err != nil || len(got) != len(keys) {
			t.Errorf("got %d values, %v", len(got), err)
		}
	})
}

// A batch in which many loads have failed doesn't delay callers of stored results, nor the end of
// other leases.
func TestGetManyLandsWhatIsReady(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, _ *cacheguard.Cache[string], o *bulk,
	) {
		var keys []string
		errs := cacheguard.KeyErrors{}
		for i := range 20 {
			keys = append(keys, fmt.Sprint("failed ", i))
			errs[keys[i]] = errOrigin
		}
		batch := getMany(t.Context(), t, a, o, append([]string{"good"}, keys...)...)
		load := o.next(append([]string{"good"}, keys...)...)
		good := getting(t.Context(), t, a, "good", returning("not called"))
		good.waits()
		bad := getting(t.Context(), t, a, keys[0], returning("not called"))
		bad.waits()
		store.onto("Conclude", func(context.Context) error { time.Sleep(time.Second); return nil })
		began := time.Now()
		load.end <- func() (map[string]string, error) {
			return map[string]string{"good": "good v"}, errs
		}
		good.gives("good v", nil)
		if _, err := bad.later(); !errors.Is(err, errOrigin) ||
			time.Since(began) > 1500*time.Millisecond {
			t.Errorf("the first that failed got %v after %v", err, time.Since(began))
		}
		wantMany(t, batch, []string{"good v"}, errs)
	})
}

// Values that are too large for messages are read side by side.
func TestGetManyReadsTogether(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		var keys, want []string
		value := strings.Repeat("x", 200_000)
		for i := range 20 {
			keys = append(keys, fmt.Sprint(100+i))
			want = append(want, keys[i]+value)
		}
		first := getMany(t.Context(), t, a, o, keys...)
		load := o.next(keys...)
		second := getMany(t.Context(), t, b, o, keys...)
		second.waits()
		store.onto("Get", func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		load.gives(value)
		first.later()
		began := time.Now()
		wantMany(t, second, want, nil)
		if n, took := store.steps("Get"), time.Since(began); n == 0 || took > 150*time.Millisecond {
			t.Errorf("%d reads took %v", n, took)
		}
	})
}

// A key that is asked for twice in one call has one caller.
func TestGetManyOfAKeyTwiceIsOneWaiter(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{MaxWaiters: 1}, func(
		t *testing.T, _ *tampered, a, _ *cacheguard.Cache[string], o *bulk,
	) {
		call := getMany(t.Context(), t, a, o, "k", "k")
		o.next("k").gives("v")
		wantMany(t, call, []string{"kv"}, nil)
	})
}

// A load that asks for many keys has the only slot. The loads of these keys run without a slot,
// although the load could have gone on with a stale value.
func TestGetManyInsideALoadWithTheOnlySlot(t *testing.T) {
	for _, stale := range []bool{false, true} {
		inBubble(t, fmt.Sprint("stale ", stale), func(t *testing.T) {
			c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
				cacheguard.Options[string]{
					TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond,
					MaxLoads: 1})
			if stale {
				if err := c.Set(t.Context(), "x", "old"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			outer := getting(t.Context(), t, c, "outer", func(ctx context.Context) (string, error) {
				got, err := c.GetMany(ctx, []string{"x", "y"}, func(
					_ context.Context, missing []string,
				) (map[string]string, error) {
					return map[string]string{"x": "1", "y": "2"}, nil
				})
				return got["x"] + got["y"], err
			})
			outer.gives("12", nil)
		})
	}
}

// SoftTimeout is the patience of a call, not of each of its keys.
func TestGetManyKeepsToSoftTimeout(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{
		TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 100 * time.Millisecond,
	},
		func(t *testing.T, _ *tampered, a, _ *cacheguard.Cache[string], o *bulk) {
			var keys []string
			for i := range 10 {
				keys = append(keys, fmt.Sprint(i))
				if err := a.Set(t.Context(), keys[i], "old"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Second)
			first := getMany(t.Context(), t, a, o, keys...)
			l := o.next(keys...)
			second := getMany(t.Context(), t, a, o, keys...)
			for _, call := range []*begun[map[string]string]{first, second} {
				if got, err := call.later(); len(got) != 10 || err != nil ||
					call.took > 150*time.Millisecond {
					t.Errorf("%d values, %v after %v; want 10 after a SoftTimeout of 100ms",
						len(got), err, call.took)
				}
			}
			l.gives("new")
		})
}

// someLeases is a store that can't give the leases of some keys, when it answers for many.
type someLeases struct {
	*tampered
	not map[string]bool
}

func (s *someLeases) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) []cacheguard.Reply[cacheguard.LeaseAnswer] {
	replies := s.tampered.LeaseMany(ctx, keys, asks)
	for i, k := range keys {
		if s.not[k.Key] {
			_ = s.Store.Release(ctx, k, asks[i].Token)
			replies[i] = cacheguard.Reply[cacheguard.LeaseAnswer]{Err: errTampered}
		}
	}
	return replies
}

// A load is cancelled when its last caller leaves, even if other keys of the same call were turned
// away.
func TestGetManyLastCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &someLeases{newTampered(), map[string]bool{"1": true}}
		c := openOn(t, cacheguard.Store(store),
			cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(1, 0)})
		o := newBulk(t)
		ctx, cancel := context.WithCancel(t.Context())
		call := getMany(ctx, t, c, o, "1", "2")
		l := o.next("2")
		cancel()
		wantMany(t, call, nil,
			cacheguard.KeyErrors{"1": cacheguard.ErrOverloaded, "2": context.Canceled})
		synctest.Wait()
		if l.ctx.Err() == nil {
			t.Error("nobody waits for the load, and it goes on")
			l.gives("new")
		}
	})
}

// The caller of a batch leaves, and another call waits for one of its keys. The load of the other
// key is cancelled, because nobody waits for it.
func TestGetManyLastCallerLeavesOneOfTwoLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &someLeases{newTampered(), map[string]bool{"1": true}}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{MaxLoads: 2})
		o := newBulk(t)
		ctx, cancel := context.WithCancel(t.Context())
		call := getMany(ctx, t, c, o, "1", "2")
		synctest.Wait()
		loads := map[string]*bulkLoad{}
		for len(o.begin) > 0 {
			l := <-o.begin
			loads[l.keys[0]] = l
		}
		if len(loads) != 2 {
			t.Fatalf("%d loads; want one with a lease and one without", len(loads))
		}
		joined := getting(t.Context(), t, c, "2", returning("own"))
		joined.waits()
		cancel()
		wantMany(t, call, nil, cacheguard.KeyErrors{"1": context.Canceled, "2": context.Canceled})
		synctest.Wait()
		if loads["1"].ctx.Err() == nil {
			t.Error("nobody waits for the load, and it goes on")
			loads["1"].gives("v")
		}
		if loads["2"].ctx.Err() != nil {
			t.Fatal("the load was cancelled, although a caller waits for it")
		}
		loads["2"].gives("v")
		joined.gives("2v", nil)
	})
}

// A slot comes for keys that nobody wants any more, because the call has ended while the run was
// busy. It is given back.
func TestGetManyGivesBackALateSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &someLeases{newTampered(), map[string]bool{"1": true}}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{MaxLoads: 1})
		many, single := newBulk(t), newScriptedOrigin[string](t)
		asking, filling := make(chan struct{}), make(chan struct{})
		store.onto("LeaseMany", func(context.Context) error { <-asking; return nil })
		store.onto("Fill", func(context.Context) error { <-filling; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		call := getMany(ctx, t, c, many, "1", "2")
		call.waits()
		ahead := getting(t.Context(), t, c, "ahead", single.load) // the first in the queue
		ahead.waits()
		close(asking)
		// It has the only slot; the load of the other key is the second in the queue.
		l := many.next("2")
		l.gives("v")
		load := single.next()
		load.fails(errOrigin)
		ahead.gives("", errOrigin)
		cancel()
		if !call.returned() {
			t.Error("the call goes on after its context has ended")
		}
		close(filling)
		slotsAreFree(t, c, 1)
		many.none()
	})
}

// Keys for which the store gave leases don't wait for the loads of keys without leases.
func TestGetManyRefreshesWithSomeLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &someLeases{newTampered(), map[string]bool{"1": true}}
		c := openOn(t, cacheguard.Store(store),
			cacheguard.Options[string]{TTL: time.Second, StaleWhileRevalidate: time.Hour})
		for _, key := range []string{"1", "2"} {
			if err := c.Set(t.Context(), key, key+"old"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		gate := make(chan struct{})
		store.onto("LeaseMany", func(context.Context) error { <-gate; return nil })
		o := newBulk(t)
		wantMany(t, getMany(t.Context(), t, c, o, "1", "2"), []string{"1old", "2old"}, nil)
		synctest.Wait() // the refresh of both asks for their leases
		refresh := beginCall(t, func() (string, error) {
			return c.Refresh(t.Context(), "1", returning("1new"))
		})
		refresh.waits()
		close(gate)
		var begun []*bulkLoad
		synctest.Wait()
		for len(o.begin) > 0 {
			begun = append(begun, <-o.begin)
		}
		if len(begun) != 2 {
			t.Errorf("%d loads run at a time; want one of what has a lease and one of what has none",
				len(begun))
		}
		for _, l := range begun {
			l.gives("new")
		}
		refresh.gives("1new", nil)
		for synctest.Wait(); len(o.begin) > 0; synctest.Wait() {
			(<-o.begin).gives("new")
		}
	})
}

// Results that can be stored are stored before their leases end, for any number of results that
// can't be stored.
func TestGetManyStoresAmongWhatIsNotStored(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{NegativeTTL: -1}, func(
		t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk,
	) {
		store.onto("Conclude", func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		keys := []string{}
		for i := range 50 {
			keys = append(keys, fmt.Sprint(i))
		}
		call := getMany(t.Context(), t, a, o, keys...)
		o.next(keys...).gives("new", keys[:49]...)
		got, err := call.later()
		checkMany(t, got, err, []string{"49new"}, nil)
		if call.took > time.Second {
			t.Errorf("the call took %v", call.took)
		}
		if res, err := b.Peek(t.Context(), "49"); res.Value != "49new" || err != nil {
			t.Errorf("the store has %+v, %v", res, err)
		}
	})
}

// A load whose leases others have taken is told so, and its callers get what those others store,
// even when both are over in the same moment.
func TestGetManyLosesSomeLeases(t *testing.T) {
	for _, keys := range [][]string{{"1"}, {"1", "2"}} {
		inBubble(t, fmt.Sprint(len(keys)), func(t *testing.T) {
			store := cacheguard.Store(newTampered())
			a, b, o := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, store, cacheguard.Options[string]{}), newBulk(t)
			call := getMany(t.Context(), t, a, o, keys...)
			l := o.next(keys...)
			writes := newScriptedOrigin[string](t)
			write := beginCall(t, func() (string, error) {
				return b.Update(t.Context(), "1", writes.load)
			})
			written := writes.next()
			time.Sleep(2 * time.Second) // renewals find out
			synctest.Wait()
			want := []string{"1written"}
			if len(keys) == 1 {
				if cause := context.Cause(l.ctx); !errors.Is(cause, cacheguard.ErrLeaseLost) {
					t.Errorf("the load's context ended with %v", cause)
				}
			} else {
				want = append(want, "2new")
				go l.gives("new")
			}
			written.gives("1written")
			write.gives("1written", nil)
			wantMany(t, call, want, nil)
		})
	}
}
