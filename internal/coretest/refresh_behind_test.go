package coretest_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// P8: one load for each expiry, though every process reads all the time, and no call that waits.
func TestOneRefreshForEachExpiry(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[int]{
		"stale-while-revalidate": {
			TTL: time.Second, StaleWhileRevalidate: time.Minute,
		},
		"early refresh": {TTL: time.Second, EarlyRefresh: 1},
		"early refresh and stale-while-revalidate": {
			TTL: time.Second, EarlyRefresh: 1, StaleWhileRevalidate: time.Minute,
		},
	} {
		bubble(t, name, func(t *testing.T) {
			cs := fleetOf(t, 4, opts)
			o := &versions{took: 100 * time.Millisecond}
			if _, err := cs[0].Get(t.Context(), "k", o.load); err != nil {
				t.Fatal(err)
			}
			var stale atomic.Int32
			var calls sync.WaitGroup
			for i, c := range cs {
				calls.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond / 4)
					for range 20000 {
						if at(t, c, o.load).Status == cacheguard.StatusStale {
							stale.Add(1)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			calls.Wait()
			// With early refresh alone a call that waited would have failed in at; with both, none
			// is stale.
			if opts.EarlyRefresh > 0 && stale.Load() > 0 {
				t.Errorf("%d stale reads although the key was refreshed early", stale.Load())
			}
			// A lifetime is at most TTL + load. At 4000 reads a second one of them wins the lot
			// about 0.6 s early: then 4000/s * 0.1 s * e^(-0.6/0.1) is 1.
			began := o.begins()
			n := len(began) - 1
			most := 20
			if opts.EarlyRefresh > 0 {
				most = 65
			}
			if n < 17 || n > most {
				t.Errorf("%d refreshes in 20 s with a TTL of 1 s", n)
			}
			for i := 1; i < len(began); i++ {
				if gap := began[i].Sub(began[i-1]); gap < o.took {
					t.Errorf("load %d began %v after the one before, which takes %v: two for one expiry",
						i, gap, o.took)
				}
			}
		})
	}
}

// TestRefreshOutlivesItsCaller: a refresh is cancelled neither by the end of its caller's context
// nor when all callers have left.
func TestRefreshOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Minute})[0]
		o := &versions{took: 100 * time.Millisecond}
		if _, err := c.Get(t.Context(), "k", o.load); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
		kept := make(chan any, 1)
		v, err := c.Get(ctx, "k", func(ctx context.Context) (int, error) {
			kept <- ctx.Value(valueKey{})
			return o.load(ctx)
		})
		cancel()
		if v != 1 || err != nil {
			t.Fatalf("got %v, %v", v, err)
		}
		time.Sleep(time.Second / 2)
		if res := at(t, c, o.load); res.Value != 2 || res.Status != cacheguard.StatusHit {
			t.Errorf("after the refresh: %+v", res)
		}
		if v := <-kept; v != "kept" {
			t.Errorf("the refresh's context has the value %v", v)
		}
	})
}

// TestInvalidateDuringARefresh: the refresh is a load like any other, and the stale value is gone.
func TestInvalidateDuringARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := fleetOf(t, 2,
			cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Hour})
		o := &versions{took: 100 * time.Millisecond}
		if _, err := cs[0].Get(t.Context(), "k", o.load); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		at(t, cs[0], o.load)
		time.Sleep(50 * time.Millisecond)
		if err := cs[1].Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if v, err := cs[0].Get(t.Context(), "k", o.load); v != 3 || err != nil {
			t.Errorf("after Invalidate: %v, %v; want a load that began after it", v, err)
		}
		if res, err := cs[1].Peek(t.Context(), "k"); res.Value != 3 || err != nil {
			t.Errorf("stored: %+v, %v", res, err)
		}
	})
}

// TestCloseEndsARefresh: no caller waits for a refresh in the background, but Close and Shutdown
// do.
func TestCloseEndsARefresh(t *testing.T) {
	for name, end := range map[string]func(*cacheguard.Cache[int]) error{
		"close": (*cacheguard.Cache[int]).Close,
		"shutdown": func(c *cacheguard.Cache[int]) error {
			return c.Shutdown(context.Background())
		},
	} {
		bubble(t, name, func(t *testing.T) {
			cs := fleetOf(t, 2,
				cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Hour})
			o := &versions{took: 100 * time.Millisecond}
			if _, err := cs[0].Get(t.Context(), "k", o.load); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			at(t, cs[0], o.load)
			synctest.Wait()
			if err := end(cs[0]); err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"close": 1, "shutdown": 2}[name]
			if res, err := cs[1].Peek(t.Context(), "k"); err != nil || res.Value != want {
				t.Errorf("stored after %s: %+v, %v", name, res, err)
			}
			at(t, cs[1], o.load) // a lease that was not released would keep it stale
			time.Sleep(200 * time.Millisecond)
			if res := at(t, cs[1], o.load); res.Status != cacheguard.StatusHit {
				t.Errorf("after %s: %+v", name, res)
			}
		})
	}
}

// TestSickProcessGoesLast: of two processes the one whose load has failed is not the one that tries
// next.
func TestSickProcessGoesLast(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[int]{
		"with a stale value":    {TTL: time.Second, StaleIfError: time.Hour, Backoff: time.Second},
		"without a stale value": {ErrorTTL: time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			cs := fleetOf(t, 2, opts)
			if opts.StaleIfError > 0 {
				if err := cs[0].Set(t.Context(), "k", 1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			var sick, well atomic.Int32
			end := time.Now().Add(5 * time.Second)
			var calls sync.WaitGroup
			for i, c := range cs {
				calls.Go(func() {
					// The sick one is always a little earlier.
					time.Sleep(time.Duration(2*i) * time.Millisecond)
					for time.Now().Before(end) {
						_, _ = c.Get(t.Context(), "k", func(context.Context) (int, error) {
							if i == 0 {
								sick.Add(1)
								return 0, errOrigin
							}
							well.Add(1)
							return 2, nil
						})
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			calls.Wait()
			if sick.Load() != 1 || well.Load() == 0 {
				t.Errorf("%d loads where it fails, %d where it doesn't", sick.Load(), well.Load())
			}
		})
	}
}

// If the leader of a look-up runs out of time, callers that have joined it don't wait for the load,
// within StaleWhileRevalidate.
func TestNobodyWaitsForARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &slowRead{Store: shared}
		c := openOn(t, cacheguard.Store(store),
			cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Hour})
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		store.took.Store(int64(20 * time.Millisecond))
		o := &versions{took: 10 * time.Second}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		first := getting(short, t, c, "k", o.load)
		synctest.Wait()
		began := time.Now()
		res, err := c.GetResult(t.Context(), "k", o.load)
		if took := time.Since(began); took > time.Second {
			t.Errorf("with a value good for an hour at hand a caller waited %v: %+v, %v", took, res,
				err)
		}
		first.later()
	})
}

// While another process refreshes a stale value, reads of it ask for its lease once.
func TestHeldIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{TTL: time.Second, StaleWhileRevalidate: time.Minute}
		a, b := openOn(t, store, opts), openLookingFirst(t, store, opts)
		if err := a.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, a, "k", o.load).gives("old", nil)
		load := o.next()
		before := store.steps("Lease") + store.steps("LeaseMany")
		for range 1000 {
			getting(t.Context(), t, b, "k", o.load).gives("old", nil)
			synctest.Wait()
		}
		if n := store.steps("Lease") + store.steps("LeaseMany") - before; n != 1 {
			t.Errorf("1000 reads of a stale value asked for its lease %d times", n)
		}
		load.gives("new")
	})
}

// While no lease can be had, reads of a stale value don't each ask for it: if the store gives no
// leases, one read in a second does; during the back-off after a failed refresh in another process,
// one read does.
func TestRefusedRefreshIsRemembered(t *testing.T) {
	opts := cacheguard.Options[string]{
		TTL: time.Second, StaleWhileRevalidate: time.Minute, Backoff: 10 * time.Second,
	}
	for name, refuse := range map[string]func(t *testing.T, store *tampered,
		other *cacheguard.Cache[string]){
		"no leases": func(t *testing.T, store *tampered, _ *cacheguard.Cache[string]) {
			store.onto("Lease", fails(always))
			store.onto("LeaseMany", fails(always))
		},
		"failed": func(t *testing.T, _ *tampered, other *cacheguard.Cache[string]) {
			getting(t.Context(), t, other, "k", failingWith[string](errOrigin)).gives("old", nil)
			synctest.Wait()
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := newTampered()
			other, c := openOn(t, store.Store, opts), openLookingFirst(t, store, opts)
			must(t, other.Set(t.Context(), "k", "old"))
			time.Sleep(2 * time.Second)
			refuse(t, store, other)
			o := newScriptedOrigin[string](t)
			before := store.steps("Lease") + store.steps("LeaseMany")
			for range 1000 {
				getting(t.Context(), t, c, "k", o.load).gives("old", nil)
				synctest.Wait()
			}
			if n := store.steps("Lease") + store.steps("LeaseMany") - before; n != 1 {
				t.Errorf("1000 reads of a stale value asked for its lease %d times", n)
			}
			o.idle()
		})
	}
}

// A read that finds a refresh under way doesn't become one of those who wait for it. So the refresh
// ends when another process has the lease.
func TestReadDoesntHoldARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{TTL: time.Second, StaleWhileRevalidate: time.Minute}
		other, c := openOn(t, store.Store, opts), openLookingFirst(t, store, opts)
		must(t, other.Set(t.Context(), "k", "old"))
		time.Sleep(2 * time.Second)
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, other, "k", o.load).gives("old", nil)
		load := o.next()
		before := store.steps("Lease")
		asking := make(chan struct{})
		store.onto("Lease", func(context.Context) error { <-asking; return nil })
		for range 3 { // the first begins a refresh, which asks for the lease meanwhile
			getting(t.Context(), t, c, "k", o.load).gives("old", nil)
		}
		close(asking)
		synctest.Wait()
		if n := store.steps("Lease") - before; n != 1 {
			t.Errorf("a refresh for which nobody waits asked for the lease %d times", n)
		}
		load.gives("new")
	})
}

// After a failed refresh, MarkStale ends the back-off: the next read refreshes the value. The same
// is true for a mark of another process, even if its message is lost.
func TestMarkEndsTheBackOff(t *testing.T) {
	opts := cacheguard.Options[int]{
		TTL: time.Second, StaleWhileRevalidate: time.Hour, Backoff: 10 * time.Second,
	}
	for name, mark := range map[string]func(t *testing.T, store *listenStore,
		c, other *cacheguard.Cache[int]){
		"its own": func(t *testing.T, _ *listenStore, c, _ *cacheguard.Cache[int]) {
			must(t, c.MarkStale(t.Context(), "k"))
		},
		"another's, whose message is lost": func(
			t *testing.T, store *listenStore, _, other *cacheguard.Cache[int],
		) {
			store.lose()
			must(t, other.MarkStale(t.Context(), "k"))
			store.restore()
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			shared := memstore.New(memstore.Options{})
			store := &listenStore{Store: shared}
			c, other := openOn(t, cacheguard.Store(store), opts),
				openOn(t, cacheguard.Store(shared), opts)
			time.Sleep(time.Millisecond)
			getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
			time.Sleep(2 * time.Second)
			getting(t.Context(), t, c, "k", failingWith[int](errOrigin)).gives(1, nil)
			synctest.Wait()
			mark(t, store, c, other)
			getting(t.Context(), t, c, "k", returning(2)).gives(1, nil)
			synctest.Wait()
			getting(t.Context(), t, c, "k", returning(3)).gives(2, nil)
		})
	}
}
