package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// many returns n keys, and the requests for their leases.
func many(n int, ttl time.Duration) (keys []cacheguard.Key, asks []cacheguard.LeaseAsk) {
	for i := range n {
		keys = append(keys, cacheguard.Key{Cache: "c", Key: fmt.Sprint(i)})
		asks = append(asks,
			cacheguard.LeaseAsk{Token: cacheguard.ID{2, byte(i), byte(i >> 8)}, TTL: ttl})
	}
	return keys, asks
}

// However many keys a batch has, and however slow the locker is, the batch doesn't wait for locks
// until its leases are over.
func TestBatchEndsWithinItsLeases(t *testing.T) {
	const n, ttl = 1000, 3 * time.Second
	for name, c := range map[string]struct {
		harm func(f *fake, keys []cacheguard.Key)
		want cacheguard.LeaseState
	}{
		"slow": {
			func(f *fake, _ []cacheguard.Key) {
				f.takes = 150 * time.Millisecond
			}, cacheguard.LeaseGranted,
		},
		"held": {func(f *fake, keys []cacheguard.Key) {
			for _, k := range keys {
				f.held["c{"+k.Key+"}"] = true
			}
		}, cacheguard.LeaseHeld},
		"slow and silent": {func(f *fake, _ []cacheguard.Key) {
			f.silent, f.takes = true, 10*time.Millisecond
		}, cacheguard.LeaseGranted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, nil)
				keys, asks := many(n, ttl)
				f.locker.set(func(f *fake) { c.harm(f, keys) })
				began := time.Now()
				replies := f.stores[0].LeaseMany(t.Context(), keys, asks)
				if took := time.Since(began); took > ttl/2 {
					t.Errorf("%d leases that last %v took %v", n, ttl, took)
				}
				for i, r := range replies {
					if r.Err != nil || r.Answer.State != c.want {
						t.Fatalf("lease %d: %v, %v; want state %v", i, r.Answer, r.Err, c.want)
					}
				}
			})
		})
	}
}

// If Patience is longer than a lease, the wait still ends before the lease.
func TestPatienceEndsWithinTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		s, err := lockstore.New(f.memory, f.locker,
			lockstore.Options{Patience: time.Hour, Logger: quiet})
		must(t, err)
		defer s.Close()
		keys, asks := many(1, 3*time.Second)
		f.locker.set(func(f *fake) { f.held["c{0}"] = true })
		began := time.Now()
		a, err := s.Lease(t.Context(), keys[0], asks[0])
		if took := time.Since(began); took >= asks[0].TTL || err != nil ||
			a.State != cacheguard.LeaseHeld {
			t.Errorf("after %v of a lease of %v: %v, %v", took, asks[0].TTL, a, err)
		}
	})
}

// away is a store whose leases can't be renewed while it is down.
type away struct {
	*memstore.Store
	down atomic.Bool
}

var errAway = errors.New("failing over")

func (s *away) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	if s.down.Load() {
		return 0, errAway
	}
	return s.Store.Renew(ctx, k, g, ttl)
}

func (s *away) RenewMany(
	ctx context.Context, keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
) []cacheguard.Reply[cacheguard.Holding] {
	if !s.down.Load() {
		return s.Store.RenewMany(ctx, keys, grants, ttl)
	}
	replies := make([]cacheguard.Reply[cacheguard.Holding], len(keys))
	for i := range replies {
		replies[i].Err = errAway
	}
	return replies
}

// If the store can't be reached for longer than a lease, as in a failover, no second load begins
// beside the first one. The first load goes on under its lock to its end.
func TestStoreIsAwayForLongerThanALease(t *testing.T) {
	get := map[string]func(f *fleet, c *cacheguard.Cache[string]) error{
		"one": func(f *fleet, c *cacheguard.Cache[string]) error {
			_, err := c.Get(context.Background(), "k", f.load("v", 20*time.Second))
			return err
		},
		"many": func(f *fleet, c *cacheguard.Cache[string]) error {
			_, err := c.GetMany(context.Background(), []string{"k", "l"}, func(
				ctx context.Context, _ []string,
			) (map[string]string, error) {
				v, err := f.load("v", 20*time.Second)(ctx)
				return map[string]string{"k": v, "l": v}, err
			})
			return err
		},
	}
	for name, get := range get {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, nil)
				store := &away{Store: f.memory}
				s, err := lockstore.New(store, f.locker, lockstore.Options{Logger: quiet})
				must(t, err)
				defer s.Close()
				first, err := cacheguard.New(s,
					cacheguard.Options[string]{Name: "c", LeaseTTL: 3 * time.Second, Logger: quiet})
				must(t, err)
				defer first.Close()

				var all sync.WaitGroup
				all.Go(func() {
					if err := get(f, first); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(5 * time.Second) // meanwhile the lease is renewed
				store.down.Store(true)
				time.Sleep(8 * time.Second)
				store.down.Store(false)
				all.Go(func() {
					if _, err := f.caches[0].Get(t.Context(), "k",
						f.load("w", time.Second)); err != nil {
						t.Error(err)
					}
				})
				all.Wait()
				synctest.Wait()
				if most := f.most.Load(); most != 1 {
					t.Errorf("%d loads at once", most)
				}
				if n := f.locker.heldNow(); n != 0 {
					t.Errorf("%d locks are left", n)
				}
			})
		})
	}
}

// A renewal that finds another load's lease waits for the message about a change. This wait also
// ends within the lease.
func TestPatienceEndsWithinARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		s, err := lockstore.New(f.memory, f.locker,
			lockstore.Options{Patience: time.Hour, Logger: quiet})
		must(t, err)
		defer s.Close()
		keys, asks := many(2, 3*time.Second)
		k, ask := keys[0], asks[0]
		a, err := s.Lease(t.Context(), k, ask)
		must(t, err)
		f.loseLease(t, k)
		_, err = f.memory.Lease(t.Context(), k, asks[1])
		must(t, err)
		began := time.Now()
		replies := s.RenewMany(t.Context(), []cacheguard.Key{k}, []cacheguard.Grant{a.Grant},
			ask.TTL)
		held, err := s.Renew(t.Context(), k, a.Grant, ask.TTL)
		if took := time.Since(began); took >= ask.TTL || err != nil ||
			held != cacheguard.HoldingGone || replies[0].Answer != held {
			t.Errorf("after %v: %v, %v, %v", took, replies, held, err)
		}
		must(t, s.Release(t.Context(), k, ask.Token))
	})
}

// If the deadline of a caller ends while its lock is being acquired, only this caller gets an
// error. The locker still counts as usable. A caller of the same flight with more time gets a load
// under the lock, and so does the next key.
func TestDeadlineOfACallerIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		locked := func(key string) cacheguard.LoadFunc[string] {
			return func(context.Context) (string, error) {
				f.locker.set(func(f *fake) {
					if !f.held["c{"+key+"}"] {
						t.Errorf("the load of %s has no lock", key)
					}
				})
				return key, nil
			}
		}
		f.locker.set(func(f *fake) { f.takes = 100 * time.Millisecond })
		var all sync.WaitGroup
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			v, err := f.caches[0].Get(ctx, "a", locked("a"))
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
				took != 50*time.Millisecond {
				t.Errorf("the caller without time got %q, %v after %v", v, err, took)
			}
		})
		synctest.Wait() // until it waits for its lock
		for _, key := range []string{"a", "b"} {
			if v, err := f.caches[0].Get(t.Context(), key, locked(key)); v != key || err != nil {
				t.Errorf("got %q, %v; want %q", v, err, key)
			}
		}
		all.Wait()
		synctest.Wait()
		if said := f.log.String(); strings.Contains(said, "can't be had") {
			t.Errorf("the store logged:\n%s", said)
		}
		if n := f.locker.heldNow(); n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

// Callers whose time is shorter than Patience also find out that the locker doesn't answer. After
// the first callers, loads need only the store's leases.
func TestCallersWithLittleTimeAndASilentLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		f.locker.set(func(f *fake) { f.silent = true })
		failed := 0
		for i := range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := f.caches[0].Get(ctx, fmt.Sprint(i), f.load("v", 0))
			cancel()
			if err != nil {
				failed++
			}
		}
		synctest.Wait()
		if failed > 5 {
			t.Errorf("%d of 30 callers got no value", failed)
		}
		if n := strings.Count(f.log.String(), "can't be had"); n != 1 {
			t.Errorf("the store logged:\n%s", f.log.String())
		}
	})
}

// hasty ends the time of its caller as soon as a lease is granted.
type hasty struct {
	cacheguard.Store
	end context.CancelFunc
}

func (s *hasty) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	defer s.end()
	return s.Store.Lease(ctx, k, ask)
}

// A caller may have no time left when its lease is granted, and release the lease at once. Then no
// lock is kept for it.
func TestReleaseBeforeTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			locker := newFake()
			memory := memstore.New(memstore.Options{})
			s, err := lockstore.New(&hasty{memory, cancel}, locker,
				lockstore.Options{Logger: quiet})
			must(t, err)
			keys, asks := many(1, time.Hour)
			_, _ = s.Lease(ctx, keys[0], asks[0])
			must(t, s.Release(t.Context(), keys[0], asks[0].Token))
			synctest.Wait()
			if n := locker.heldNow(); n != 0 {
				t.Errorf("%d locks are kept", n)
			}
			must(t, s.Close())
			must(t, memory.Close())
			cancel()
		}
	})
}

// slowLeases takes some time for each lease.
type slowLeases struct {
	cacheguard.Store
	takes time.Duration
}

func (s *slowLeases) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	time.Sleep(s.takes) // on the bubble's clock
	return s.Store.Lease(ctx, k, ask)
}

// A store may be so slow that little or no time is left for the lock. Then the load has only its
// lease, and this is no trouble of the locker.
func TestLittleTimeLeftForTheLock(t *testing.T) {
	for _, left := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, nil) // its LeaseTTL is 3 s
			slow := &slowLeases{f.memory, time.Second - left}
			store, err := lockstore.New(slow, f.locker,
				lockstore.Options{Logger: slog.New(slog.NewTextHandler(&f.log, nil))})
			must(t, err)
			defer store.Close()
			f.locker.set(func(f *fake) { f.takes = 10 * time.Millisecond })
			keys, asks := many(2, 3*time.Second)
			a, err := store.Lease(t.Context(), keys[0], asks[0])
			if err != nil || a.State != cacheguard.LeaseGranted || f.locker.heldNow() != 0 {
				t.Errorf("%v, %v, %d locks are held", a, err, f.locker.heldNow())
			}
			slow.takes = 0
			a, err = store.Lease(t.Context(), keys[1], asks[1])
			if err != nil || a.State != cacheguard.LeaseGranted || f.locker.heldNow() != 1 {
				t.Errorf("%v, %v, %d locks are held", a, err, f.locker.heldNow())
			}
			if text := f.log.String(); strings.Contains(text, "can't be had") {
				t.Error(text)
			}
		})
	}
}
