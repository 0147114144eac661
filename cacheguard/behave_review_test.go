package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Where calls for many keys meet budgets, patience, other processes' claims and callers who leave.

// A load that asks for many keys holds the only slot: what it asks for does without one, although a
// stale value could have let it go on.
func TestManyInsideALoadWithTheOnlySlot(t *testing.T) {
	for _, stale := range []bool{false, true} {
		inBubble(t, fmt.Sprint("stale ", stale), func(t *testing.T) {
			c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})), cacheguard.Options[string]{
				TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond, MaxLoads: 1})
			if stale {
				if err := c.Set(t.Context(), "x", "old"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			outer := getting(t.Context(), t, c, "outer", func(ctx context.Context) (string, error) {
				got, err := c.GetMany(ctx, []string{"x", "y"}, func(_ context.Context, missing []string) (map[string]string, error) {
					return map[string]string{"x": "1", "y": "2"}, nil
				})
				return got["x"] + got["y"], err
			})
			outer.gives("12", nil)
		})
	}
}

// The same for a Refresh that joins one which was begun behind its back, and waits for a slot.
func TestRefreshInsideALoadWithTheOnlySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})), cacheguard.Options[string]{
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

// SoftTimeout is the patience of a call, not of each of its keys.
func TestManySoftTimeoutOfJoinedFlights(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 100 * time.Millisecond},
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
				if got, err := call.later(); len(got) != 10 || err != nil || call.took > 150*time.Millisecond {
					t.Errorf("%d values, %v after %v; want 10 after a SoftTimeout of 100ms", len(got), err, call.took)
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

func (s *someLeases) LeaseMany(ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk) []cacheguard.Reply[cacheguard.LeaseAnswer] {
	replies := s.tampered.LeaseMany(ctx, keys, asks)
	for i, k := range keys {
		if s.not[k.Key] {
			_ = s.Store.Release(ctx, k, asks[i].Token)
			replies[i] = cacheguard.Reply[cacheguard.LeaseAnswer]{Err: errTampered}
		}
	}
	return replies
}

// A load ends with its last caller, also when others of the same call were turned away.
func TestManyLastCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &someLeases{newTampered(), map[string]bool{"1": true}}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{Limiter: cacheguard.NewLimiter(1, 0)})
		o := newBulk(t)
		ctx, cancel := context.WithCancel(t.Context())
		call := getMany(ctx, t, c, o, "1", "2")
		l := o.next("2")
		cancel()
		wantMany(t, call, nil, cacheguard.KeyErrors{"1": cacheguard.ErrOverloaded, "2": context.Canceled})
		synctest.Wait()
		if l.ctx.Err() == nil {
			t.Error("nobody waits for the load, and it goes on")
			l.gives("new")
		}
	})
}

// What the store gave leases for doesn't wait for the loads of what it gave none for.
func TestManyRefreshWithSomeLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &someLeases{newTampered(), map[string]bool{"1": true}}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{TTL: time.Second, StaleWhileRevalidate: time.Hour})
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
		refresh := beginCall(t, func() (string, error) { return c.Refresh(t.Context(), "1", returning("1new")) })
		refresh.waits()
		close(gate)
		var begun []*bulkLoad
		synctest.Wait()
		for len(o.begin) > 0 {
			begun = append(begun, <-o.begin)
		}
		if len(begun) != 2 {
			t.Errorf("%d loads run at a time; want one of what has a lease and one of what has none", len(begun))
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

// However many results there are that can't be stored, the others are, before their leases run out.
func TestManyStoresAmongWhatIsNotStored(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{NegativeTTL: -1}, func(t *testing.T, store *tampered, a, b *cacheguard.Cache[string], o *bulk) {
		store.onto("Conclude", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
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
func TestManyTakenKeys(t *testing.T) {
	for _, keys := range [][]string{{"1"}, {"1", "2"}} {
		inBubble(t, fmt.Sprint(len(keys)), func(t *testing.T) {
			store := cacheguard.Store(newTampered())
			a, b, o := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{}), newBulk(t)
			call := getMany(t.Context(), t, a, o, keys...)
			l := o.next(keys...)
			writes := newScriptedOrigin[string](t)
			write := beginCall(t, func() (string, error) { return b.Update(t.Context(), "1", writes.load) })
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
