package coretest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// What callers feel of an expiry, and of an origin that fails, on a fake clock: caches of one name
// on one memstore are the processes of a fleet.

// versions is an origin whose value is the number of its load.
type versions struct {
	took   time.Duration
	loads  atomic.Int32
	broken atomic.Bool

	mu    sync.Mutex // guards began
	began []time.Time
}

// begins is when loads began, in order.
func (o *versions) begins() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.began)
}

func (o *versions) load(ctx context.Context) (int, error) {
	n := int(o.loads.Add(1))
	o.mu.Lock()
	o.began = append(o.began, time.Now())
	o.mu.Unlock()
	select {
	case <-time.After(o.took):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if o.broken.Load() {
		return 0, errOrigin
	}
	return n, nil
}

// fleetOf makes the caches of a fleet.
func fleetOf(t *testing.T, n int, opts cacheguard.Options[int]) []*cacheguard.Cache[int] {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	opts.Name, opts.Jitter = "stale", -1
	cs := make([]*cacheguard.Cache[int], n)
	for i := range cs {
		cs[i] = openOn(t, store, opts)
	}
	return cs
}

// at makes a call that must return at once, and returns its result.
func at(
	t *testing.T, c *cacheguard.Cache[int], load cacheguard.LoadFunc[int],
) cacheguard.Result[int] {
	t.Helper()
	began := time.Now()
	res, err := c.GetResult(t.Context(), "k", load)
	if err != nil {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(began); took != 0 {
		t.Errorf("a call took %v", took)
	}
	return res
}

// P8: no caller waits for a refresh, and one process of the fleet does it.
func TestStaleWhileRevalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := fleetOf(t, 5,
			cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Minute})
		o := &versions{took: 100 * time.Millisecond}
		if _, err := cs[0].Get(t.Context(), "k", o.load); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		var calls sync.WaitGroup
		for _, c := range cs {
			for range 10 {
				calls.Go(func() {
					for range 50 { // 1 ms each: as long as half a load
						res := at(t, c, o.load)
						if res.Value != 1 || res.Status != cacheguard.StatusStale ||
							res.Err != nil || res.FreshFor >= 0 {
							t.Errorf("while it is refreshed: %+v", res)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
		}
		calls.Wait()
		time.Sleep(100 * time.Millisecond)
		for _, c := range cs {
			if res := at(t, c, o.load); res.Value != 2 || res.Status != cacheguard.StatusHit {
				t.Errorf("after the refresh: %+v", res)
			}
		}
		if n := o.loads.Load(); n != 2 {
			t.Errorf("%d loads, want the first and one refresh", n)
		}
	})
}

type valueKey struct{}

// P8: an origin that fails for a minute is tried once for each back-off in the whole fleet, which
// grows, and everybody is served meanwhile; it is back to normal within one back-off after the
// origin is.
func TestStaleIfError(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[int]{
		"alone": {TTL: time.Second, StaleIfError: time.Hour},
		"with stale-while-revalidate": {
			TTL: time.Second, StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour,
		},
		"with early refresh": {TTL: time.Second, StaleIfError: time.Hour, EarlyRefresh: 1},
		"with a soft timeout": {
			TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 20 * time.Millisecond,
		},
	} {
		bubble(t, name, func(t *testing.T) {
			opts.Backoff = 4 * time.Second
			cs := fleetOf(t, 4, opts)
			o := &versions{took: 100 * time.Millisecond}
			if _, err := cs[0].Get(t.Context(), "k", o.load); err != nil {
				t.Fatal(err)
			}
			o.broken.Store(true)
			served, end := atomic.Int32{}, time.Now().Add(time.Minute)
			var calls sync.WaitGroup
			for i, c := range cs {
				calls.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					for time.Now().Before(end) {
						res, err := c.GetResult(t.Context(), "k", o.load)
						if err != nil || res.Value != 1 {
							t.Errorf("got %+v, %v", res, err)
						}
						if res.Status == cacheguard.StatusStale && res.Err != nil {
							served.Add(1)
							if le := (*cacheguard.LoadError)(nil); !errors.Is(res.Err, errOrigin) &&
								!errors.As(res.Err, &le) {
								t.Errorf("served because of %v", res.Err)
							}
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			calls.Wait()
			if served.Load() == 0 {
				t.Error("no stale value said why it was served")
			}
			began := o.begins()
			for i := 2; i < len(began); i++ {
				gap, least := began[i].Sub(began[i-1]), time.Duration(0.8*float64(4*time.Second))
				between(t, "the next try", gap, least, 3*4*time.Second+200*time.Millisecond)
			}
			last := began[len(began)-1].Sub(began[len(began)-2])
			between(t, "the last try after the one before", last, 8*time.Second, 13*time.Second)

			o.broken.Store(false)
			back := time.Now()
			for {
				res, err := cs[1].GetResult(t.Context(), "k", o.load)
				if err != nil {
					t.Fatal(err)
				}
				if res.Value > 1 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			between(t, "normal again", time.Since(back), 0, 3*4*time.Second+time.Second)
		})
	}
}

// TestStaleIfErrorEnds: after the window the error is the answer, at once and without a convoy.
func TestStaleIfErrorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{TTL: time.Second, StaleIfError: 3 * time.Second})[0]
		o := &versions{took: 100 * time.Millisecond}
		if _, err := c.Get(t.Context(), "k", o.load); err != nil {
			t.Fatal(err)
		}
		o.broken.Store(true)
		time.Sleep(2 * time.Second)
		if res, err := c.GetResult(t.Context(), "k", o.load); err != nil || res.Value != 1 ||
			!errors.Is(res.Err, errOrigin) {
			t.Errorf("within the window: %+v, %v", res, err)
		}
		time.Sleep(2 * time.Second) // the default back-off of 10 s would outlast the value
		began, loads := time.Now(), o.loads.Load()
		if res, err := c.GetResult(t.Context(), "k", o.load); !errors.Is(err, errOrigin) ||
			res.Value != 0 {
			t.Errorf("after the window: %+v, %v", res, err)
		}
		if o.loads.Load() != loads+1 || time.Since(began) != o.took {
			t.Errorf("after the window: %d loads, %v", o.loads.Load()-loads, time.Since(began))
		}
	})
}

// TestSoftTimeout: a caller with a stale value at hand waits that long, and the load goes on
// without it.
func TestSoftTimeout(t *testing.T) {
	for name, opts := range map[string]cacheguard.Options[int]{
		"stale-while-revalidate": {StaleWhileRevalidate: time.Hour},
		"stale-if-error":         {StaleIfError: time.Hour},
	} {
		bubble(t, name, func(t *testing.T) {
			opts.TTL, opts.SoftTimeout = time.Second, 30*time.Millisecond
			cs := fleetOf(t, 2, opts)
			o := &versions{took: 100 * time.Millisecond}
			if _, err := cs[0].Get(t.Context(), "k", o.load); err != nil {
				t.Fatal(err)
			}
			for round, took := range []time.Duration{
				100 * time.Millisecond, 20 * time.Millisecond,
			} {
				time.Sleep(time.Second)
				o.took = took
				var calls sync.WaitGroup
				for i := range 10 {
					calls.Go(func() {
						began := time.Now()
						res, err := cs[i%2].GetResult(t.Context(), "k", o.load)
						if waited := time.Since(began); err != nil ||
							waited != min(took, 30*time.Millisecond) {
							t.Errorf("%+v, %v after %v", res, err, waited)
						}
						if stale := res.Status == cacheguard.StatusStale; stale !=
							(took > 30*time.Millisecond) || (!stale && res.Value != round+2) {
							t.Errorf("a load of %v gave %+v", took, res)
						}
					})
				}
				calls.Wait()
				time.Sleep(100 * time.Millisecond)
				if res := at(t, cs[1], o.load); res.Value != round+2 ||
					res.Status != cacheguard.StatusHit {
					t.Errorf("after the load: %+v", res)
				}
			}
		})
	}
}

// TestStaleBeforeTrouble: if a load can't begin, a stale value that may be served is served, for
// every reason.
func TestStaleBeforeTrouble(t *testing.T) {
	for _, policy := range []cacheguard.StorePolicy{cacheguard.FailOpen, cacheguard.FailClosed} {
		bubble(t, "no leases", func(t *testing.T) {
			store := &noLeases{Store: memstore.New(memstore.Options{})}
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{
				TTL: time.Second, StaleIfError: time.Minute, OnStoreDown: policy,
			})
			if err := c.Set(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			store.down.Store(true)
			res := at(t, c, (&versions{}).load)
			if res.Value != 1 || res.Status != cacheguard.StatusStale || !res.Degraded ||
				!errors.Is(res.Err, cacheguard.ErrUnavailable) {
				t.Errorf("got %+v", res)
			}
			store.down.Store(false)
			time.Sleep(2 * time.Second)
			if v, err := c.Get(t.Context(), "k", returning(2)); v != 2 || err != nil {
				t.Errorf("with leases again: %v, %v", v, err)
			}
		})
	}
	bubble(t, "no slot", func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{
				TTL: time.Second, StaleIfError: time.Minute, Limiter: cacheguard.NewLimiter(1, 0),
			})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		hold, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Get(t.Context(), "other", func(context.Context) (int, error) {
				<-hold
				return 0, nil
			})
		}()
		synctest.Wait()
		res := at(t, c, returning(2))
		if res.Value != 1 || res.Status != cacheguard.StatusStale ||
			!errors.Is(res.Err, cacheguard.ErrOverloaded) {
			t.Errorf("got %+v", res)
		}
		close(hold)
		<-done
	})
}

type noLeases struct {
	cacheguard.Store
	down atomic.Bool
}

func (s *noLeases) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	if s.down.Load() {
		return cacheguard.LeaseAnswer{}, errors.New("out of memory")
	}
	return s.Store.Lease(ctx, k, ask)
}

// TestSupersededValueGoes: a value that a load has found to be out of date is not served as stale,
// even if no new value is stored in its place.
func TestSupersededValueGoes(t *testing.T) {
	for name, load := range map[string]cacheguard.EntryFunc[int]{
		"not found, not remembered": func(
			context.Context, cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			return cacheguard.Entry[int]{NoStore: true}, cacheguard.ErrNotFound
		},
		"not found": func(context.Context, cacheguard.Result[int]) (cacheguard.Entry[int], error) {
			return cacheguard.Entry[int]{}, cacheguard.ErrNotFound
		},
		"not to be stored": func(
			context.Context, cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			return cacheguard.Entry[int]{Value: 2, NoStore: true}, nil
		},
		"not to be shared": func(
			context.Context, cacheguard.Result[int],
		) (cacheguard.Entry[int], error) {
			return cacheguard.Entry[int]{Value: 2, NoShare: true}, nil
		},
	} {
		bubble(t, name, func(t *testing.T) {
			cs := fleetOf(t, 2, cacheguard.Options[int]{
				TTL: time.Second, StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour,
			})
			if err := cs[0].Set(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if res, err := cs[0].GetEntry(t.Context(), "k", load); err != nil || res.Value != 1 {
				t.Errorf("the stale value: %+v, %v", res, err)
			}
			synctest.Wait()
			if res, err := cs[1].Peek(t.Context(), "k"); err != nil || res.Value != 0 {
				t.Errorf("after the load: %+v, %v", res, err)
			}
		})
	}
}

// TestWindowsOfAnEntry are the load's own word.
func TestWindowsOfAnEntry(t *testing.T) {
	const never = -1
	for _, c := range []struct {
		name       string
		swr, sie   time.Duration
		notFound   bool
		served     time.Duration // stale for so long after its TTL without waiting
		afterError time.Duration
	}{
		{"as the options", 0, 0, false, 10 * time.Second, 20 * time.Second},
		{"longer", time.Minute, time.Hour, false, time.Minute, time.Hour},
		{"none", never, never, false, 0, 0},
		{"of what does not exist: none", 0, 0, true, 0, 0},
		{"of what does not exist", time.Minute, time.Hour, true, time.Minute, time.Hour},
	} {
		bubble(t, c.name, func(t *testing.T) {
			cache := fleetOf(t, 1, cacheguard.Options[int]{
				TTL: time.Second, NegativeTTL: time.Second, StaleWhileRevalidate: 10 * time.Second,
				StaleIfError: 20 * time.Second,
			})[0]
			want := error(nil)
			if c.notFound {
				want = cacheguard.ErrNotFound
			}
			_, err := cache.GetEntry(t.Context(), "k", func(
				context.Context, cacheguard.Result[int],
			) (cacheguard.Entry[int], error) {
				return cacheguard.Entry[int]{
					Value: 1, StaleWhileRevalidate: c.swr, StaleIfError: c.sie,
				}, want
			})
			if !errors.Is(err, want) {
				t.Fatal(err)
			}
			o := &versions{took: time.Millisecond}
			o.broken.Store(true)
			began := time.Now()
			try := func(after time.Duration) (cacheguard.Result[int], error) {
				time.Sleep(time.Until(began.Add(time.Second + after)))
				return cache.GetResult(t.Context(), "k", o.load)
			}
			if c.served > 0 {
				if res, err := try(c.served - time.Millisecond); res.Status !=
					cacheguard.StatusStale || res.Err != nil || !errors.Is(err, want) {
					t.Errorf("within the window: %+v, %v", res, err)
				}
			}
			if c.afterError > 0 {
				if res, err := try(c.afterError - 10*time.Millisecond); res.Status !=
					cacheguard.StatusStale || res.Err == nil || !errors.Is(err, want) {
					t.Errorf("within the window for errors: %+v, %v", res, err)
				}
			}
			if res, err := try(c.afterError + 2*time.Second); !errors.Is(err, errOrigin) {
				t.Errorf("after the windows: %+v, %v", res, err)
			}
		})
	}
}

// TestStaleIfErrorEndsDuringTheLoad: what may be served is judged when it is served.
func TestStaleIfErrorEndsDuringTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1, cacheguard.Options[int]{TTL: time.Second, StaleIfError: time.Second})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		o := &versions{took: 500 * time.Millisecond}
		o.broken.Store(true)
		time.Sleep(1900 * time.Millisecond)
		if res, err := c.GetResult(t.Context(), "k", o.load); !errors.Is(err, errOrigin) {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

// What SoftTimeout offers is not served after its stale window has ended.
func TestSoftTimeoutOffersWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1,
			cacheguard.Options[int]{
				TTL: time.Second, StaleIfError: time.Second, SoftTimeout: 10 * time.Millisecond,
			})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		o := &versions{took: 20 * time.Second}
		if res, err := c.GetResult(t.Context(), "k", o.load); err != nil || res.Value != 1 {
			t.Fatalf("within the window: %+v, %v", res, err)
		}
		time.Sleep(15 * time.Second) // the window was over 14.5 s ago
		res, err := c.GetResult(t.Context(), "k", o.load)
		if err == nil && res.Status == cacheguard.StatusStale {
			t.Errorf("15 s after a window of 1 s: %+v", res)
		}
	})
}

// Observers are told of no miss when a stale value is served at once.
func TestStaleIsNoMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &guardtest.Recorder{}
		c := fleetOf(t, 1,
			cacheguard.Options[int]{
				TTL: time.Second, StaleWhileRevalidate: time.Hour, Observer: events,
			})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		at(t, c, returning(2))
		if events.Count(cacheguard.EventMiss) > 0 {
			t.Errorf("a stale value that is served at once: %v", events)
		}
	})
}

// hungLease is a store that answers no question for a lease, and says so after a while.
type hungLease struct{ cacheguard.Store }

func (hungLease) Lease(
	context.Context, cacheguard.Key, cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	time.Sleep(time.Second)
	return cacheguard.LeaseAnswer{}, errors.New("no answer")
}

// A stale value whose window ends while the store doesn't answer is none any more: with FailOpen
// there is a load.
func TestStaleValueThatEndsWhileTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c, err := cacheguard.New(hungLease{store}, cacheguard.Options[int]{
			Name: "ends", TTL: time.Minute, Jitter: -1, StaleIfError: 10 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(69*time.Second + 500*time.Millisecond)
		r, err := c.GetResult(t.Context(), "k", func(context.Context) (int, error) {
			return 2, nil
		})
		if r.Value != 2 || err != nil {
			t.Errorf("got %+v, %v; want what a load returns", r, err)
		}
	})
}

// The stale windows begin with the first mark, even if a later mark can't be stored yet.
func TestLaterMarkThatIsPending(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store,
			cacheguard.Options[int]{TTL: time.Hour, StaleWhileRevalidate: 10 * time.Second})
		time.Sleep(time.Millisecond)
		getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
		time.Sleep(10 * time.Second)
		must(t, c.MarkStale(t.Context(), "k"))
		time.Sleep(5 * time.Second)
		store.onto("MarkStale", fails(always))
		if err := c.MarkStale(t.Context(), "k"); !errors.Is(err, cacheguard.ErrPending) {
			t.Fatalf("MarkStale: %v; want ErrPending", err)
		}
		time.Sleep(7 * time.Second)
		getting(t.Context(), t, c, "k", returning(2)).gives(2, nil)
	})
}
