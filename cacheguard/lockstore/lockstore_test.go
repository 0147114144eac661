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
	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/logtest"
)

// fleet is a number of replicas in a synctest bubble, each with a store of its own around one
// shared memory, and one locker.
type fleet struct {
	memory *memstore.Store
	locker *fake
	stores []*lockstore.Store
	caches []*cacheguard.Cache[string]
	log    strings.Builder

	loads atomic.Int64
	under atomic.Int64 // the number of loads under way
	most  atomic.Int64 // the largest number of loads under way at once
}

func newFleet(t *testing.T, n int, change func(*cacheguard.Options[string])) *fleet {
	t.Helper()
	f := &fleet{memory: memstore.New(memstore.Options{}), locker: newFake()}
	t.Cleanup(func() { f.memory.Close() })
	for range n {
		s, err := lockstore.New(f.memory, f.locker,
			lockstore.Options{Logger: slog.New(slog.NewTextHandler(&f.log, nil))})
		must(t, err)
		opts := cacheguard.Options[string]{
			Name: "c", TTL: time.Minute, Jitter: -1, LeaseTTL: 3 * time.Second, Logger: quiet,
		}
		if change != nil {
			change(&opts)
		}
		c, err := cacheguard.New(s, opts)
		must(t, err)
		t.Cleanup(func() { _ = c.Close(); _ = s.Close() })
		f.stores, f.caches = append(f.stores, s), append(f.caches, c)
	}
	return f
}

// load returns a load that counts itself and takes the given time.
func (f *fleet) load(value string, takes time.Duration) cacheguard.LoadFunc[string] {
	return func(ctx context.Context) (string, error) {
		f.loads.Add(1)
		now := f.under.Add(1)
		defer f.under.Add(-1)
		for most := f.most.Load(); now > most &&
			!f.most.CompareAndSwap(most, now); most = f.most.Load() {
		}
		select {
		case <-time.After(takes):
			return value, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// loseLease ends a lease without its holder's knowledge.
func (f *fleet) loseLease(t *testing.T, k cacheguard.Key) {
	t.Helper()
	a, err := f.memory.Lease(t.Context(), k,
		cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Second})
	must(t, err)
	if a.State != cacheguard.LeaseHeld {
		t.Fatalf("the lease is not held: %v", a)
	}
	must(t, f.memory.Release(t.Context(), k, a.Holder))
}

// knowing is a store that knows why messages don't arrive.
type knowing struct{ cacheguard.Store }

var errDeaf = errors.New("no route to it")

func (knowing) Deafness() (since, last time.Time, err error) { return since, last, errDeaf }

// What the wrapped store knows about messages gets through. A store that knows nothing has no
// error.
func TestDeafnessGetsThrough(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	for _, c := range []struct {
		store cacheguard.Store
		want  error
	}{{memory, nil}, {knowing{memory}, errDeaf}} {
		s := lockstore.Wrap(c.store, newFake())
		if _, _, err := s.Deafness(); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
		_ = s.Close()
	}
}

// stepping is a store that knows how long a step takes at most.
type stepping struct{ cacheguard.Store }

func (stepping) StepTimeout() time.Duration { return time.Second }

// A cache warns of a LeaseTTL below what a step of the store may take, whether or not the store is
// wrapped.
func TestStepTimeoutGetsThrough(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	for _, inner := range []cacheguard.Store{memory, stepping{memory}} {
		s := lockstore.Wrap(inner, newFake())
		var lines [2]string
		for i, store := range []cacheguard.Store{inner, s} {
			var log logtest.Lines
			c, err := cacheguard.New(store, cacheguard.Options[string]{
				Name: "c", LeaseTTL: 100 * time.Millisecond, Logger: log.Logger(),
			})
			must(t, err)
			must(t, c.Close())
			_, lines[i], _ = strings.Cut(log.String(), "level=")
		}
		if lines[0] != lines[1] || (inner == memory) != (lines[0] == "") {
			t.Errorf("%T: the cache logged %q, and with locks %q", inner, lines[0], lines[1])
		}
		must(t, s.Close())
	}
}

func TestOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, nil)
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				// The load takes longer than a lease.
				v, err := f.caches[i%4].Get(t.Context(), "k", f.load("v", 10*time.Second))
				if v != "v" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		synctest.Wait()
		if n := f.locker.heldNow(); n != 1 {
			t.Errorf("%d locks are held during the load", n)
		}
		all.Wait()
		synctest.Wait()
		if n := f.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		// Processes that wait never use the lock.
		if asked, held := f.locker.get(func(f *fake) int { return f.asked }),
			f.locker.heldNow(); asked != 1 || held != 0 {
			t.Errorf("the locker was asked %d times, %d locks are left", asked, held)
		}
	})
}

// If the store loses a lease, no second load begins beside the first one. Without locks a second
// load would begin.
func TestLeaseIsLost(t *testing.T) {
	for _, locked := range []bool{true, false} {
		t.Run(fmt.Sprint(locked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, nil)
				if !locked {
					f.locker.set(func(f *fake) { f.sloppy = true })
				}
				var all sync.WaitGroup
				for i := range 2 {
					all.Go(func() {
						// The load takes as long as several leases.
						v, err := f.caches[i].Get(t.Context(), "k",
							f.load(fmt.Sprint(i), 10*time.Second))
						if v != fmt.Sprint(i) || err != nil {
							t.Errorf("process %d got %q, %v", i, v, err)
						}
					})
					synctest.Wait()
					if i == 0 {
						f.loseLease(t, cacheguard.Key{Cache: "c", Key: "k"})
					}
				}
				all.Wait()
				want := int64(2)
				if locked {
					want = 1
				}
				if most := f.most.Load(); most != want {
					t.Errorf("%d loads at once; want %d", most, want)
				}
			})
		})
	}
}

// If a change has made a load useless, the load doesn't hold up the next load.
func TestChangeEndsTheLock(t *testing.T) {
	for name, change := range map[string]func(c *cacheguard.Cache[string]) error{
		"invalidate": func(c *cacheguard.Cache[string]) error {
			return c.Invalidate(context.Background(), "k")
		},
		"mark stale": func(c *cacheguard.Cache[string]) error {
			return c.MarkStale(context.Background(), "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, nil)
				var all sync.WaitGroup
				all.Go(func() {
					_, _ = f.caches[0].Get(t.Context(), "k", f.load("old", time.Hour))
				})
				synctest.Wait()
				must(t, change(f.caches[1]))
				began := time.Now()
				v, err := f.caches[1].Get(t.Context(), "k", f.load("new", time.Second))
				if v != "new" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("after a change the load of a second was waited for %v", took)
				}
				_ = f.caches[0].Close()
				all.Wait()
			})
		})
	}
}

// overheard is a store whose messages a test may send again.
type overheard struct {
	cacheguard.Store
	tell func(cacheguard.Message)
}

func (o *overheard) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	o.tell = tell
	return o.Store.Listen(cache, tell)
}

// If the message about a change comes late, it doesn't take the lock from the load that began after
// the change.
func TestLateMessageOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, locker := memstore.New(memstore.Options{}), newFake()
		defer memory.Close()
		heard := &overheard{Store: memory}
		s, err := lockstore.New(heard, locker, lockstore.Options{})
		must(t, err)
		defer s.Close()
		k := cacheguard.Key{Cache: "c", Key: "k"}
		a, err := s.Lease(t.Context(), k,
			cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Minute})
		must(t, err)
		if a.State != cacheguard.LeaseGranted {
			t.Fatalf("the lease is not granted: %v", a)
		}
		heard.tell(cacheguard.Message{Kind: cacheguard.MessageChanged, Key: k.Key})
		synctest.Wait()
		if locker.heldNow() != 1 {
			t.Error("a message of a change before the grant has ended its lock")
		}
		must(t, s.Invalidate(t.Context(), []cacheguard.Key{k}))
		synctest.Wait()
		if locker.heldNow() != 0 {
			t.Error("a change has not ended the lock")
		}
	})
}

// deaf is a store whose messages don't arrive, as before it has subscribed.
type deaf struct{ cacheguard.Store }

func (deaf) Listen(string, func(cacheguard.Message)) (stop func()) { return func() {} }

// A process needs no message about its own changes.
func TestOwnChangeEndsTheLock(t *testing.T) {
	k := cacheguard.Key{Cache: "c", Key: "k"}
	for name, change := range map[string]func(s *lockstore.Store) error{
		"invalidate": func(s *lockstore.Store) error {
			return s.Invalidate(context.Background(), []cacheguard.Key{k})
		},
		"mark stale": func(s *lockstore.Store) error {
			return s.MarkStale(context.Background(), []cacheguard.Key{k}, 0, []byte{1})
		},
		"claim": func(s *lockstore.Store) error {
			_, err := s.Claim(context.Background(), k, cacheguard.ID{2}, time.Minute)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, locker := memstore.New(memstore.Options{}), newFake()
				defer memory.Close()
				s, err := lockstore.New(deaf{memory}, locker, lockstore.Options{})
				must(t, err)
				defer s.Close()
				a, err := s.Lease(t.Context(), k,
					cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Minute})
				must(t, err)
				if a.State != cacheguard.LeaseGranted || locker.heldNow() != 1 {
					t.Fatalf("the lease is not granted: %v, %d locks", a, locker.heldNow())
				}
				must(t, change(s))
				synctest.Wait()
				if locker.heldNow() != 0 {
					t.Error("the lock is still held")
				}
			})
		})
	}
}

// Every way in which a load can end gives the lock back.
func TestEveryExitUnlocks(t *testing.T) {
	for name, load := range map[string]cacheguard.LoadFunc[string]{
		"value":     func(context.Context) (string, error) { return "v", nil },
		"error":     func(context.Context) (string, error) { return "", errors.New("no") },
		"not found": func(context.Context) (string, error) { return "", cacheguard.ErrNotFound },
		"panic":     func(context.Context) (string, error) { panic("p") },
		"timeout": func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, func(o *cacheguard.Options[string]) {
					o.LoadTimeout = time.Second
				})
				_, _ = f.caches[0].Get(t.Context(), "k", load)
				synctest.Wait()
				if n := f.locker.heldNow(); n != 0 {
					t.Errorf("%d locks are left", n)
				}
			})
		})
	}
	t.Run("caller leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = f.caches[0].Get(ctx, "k", f.load("v", time.Hour))
			synctest.Wait()
			if n := f.locker.heldNow(); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	})
	t.Run("batch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, nil)
			var keys []string
			for i := range 50 {
				keys = append(keys, fmt.Sprint(i))
			}
			got, err := f.caches[0].GetMany(t.Context(), keys, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				if n := f.locker.heldNow(); n != len(missing) {
					t.Errorf("%d locks for %d keys", n, len(missing))
				}
				v := make(map[string]string)
				for _, k := range missing {
					v[k] = k
				}
				return v, nil
			})
			if len(got) != 50 || err != nil {
				t.Errorf("%d values, %v", len(got), err)
			}
			synctest.Wait()
			if n := f.locker.heldNow(); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	})
}

// While the locker can't be used, loads need only the store's leases. This is logged once, and a
// caller waits for the locker at most once a second.
func TestLockerIsDown(t *testing.T) {
	for name, harm := range map[string]func(f *fake){
		"errors": func(f *fake) { f.down = errors.New("no quorum") },
		"silent": func(f *fake) { f.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 2, nil)
				f.locker.set(harm)
				began := time.Now()
				for i := range 100 {
					key := fmt.Sprint(i)
					if v, err := f.caches[i%2].Get(t.Context(), key, f.load(key, 0)); v != key ||
						err != nil {
						t.Errorf("got %q, %v", v, err)
					}
				}
				if took := time.Since(began); took > time.Second/2 {
					t.Errorf("100 loads took %v", took)
				}
				if n := f.locker.get(func(f *fake) int { return f.asked }); n > 4 {
					t.Errorf("the locker was asked %d times", n)
				}
				f.locker.set(func(f *fake) { f.down, f.silent = nil, false })
				time.Sleep(2 * time.Second)
				for i := range 2 {
					_, _ = f.caches[i].Get(t.Context(), fmt.Sprint("after", i), func(
						context.Context,
					) (string, error) {
						if n := f.locker.heldNow(); n != 1 {
							t.Errorf("%d locks are held", n)
						}
						return "v", nil
					})
					synctest.Wait() // until the lock is given back
				}
				if warned, over := strings.Count(f.log.String(), "can't be had"),
					strings.Count(f.log.String(), "had again"); warned != 2 || over != 2 {
					t.Errorf("two stores logged:\n%s", f.log.String())
				}
			})
		})
	}
}

// If a locker grants one lock twice, no second load runs, and no late fill is stored.
func TestLockerGrantsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4, nil)
		f.locker.set(func(f *fake) { f.sloppy = true })
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				_, _ = f.caches[i%4].Get(t.Context(), "k", f.load("v", 10*time.Second))
			})
		}
		all.Wait()
		if n := f.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// If a load that has lost its lease holds the lock, other processes wait. They ask for the key's
// lock only a few times a second.
func TestHeldElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, nil)
		held, err := f.locker.Lock(t.Context(), "c{k}")
		must(t, err)
		before := f.locker.get(func(f *fake) int { return f.asked })
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				if v, err := f.caches[i].Get(t.Context(), "k", f.load("v", 0)); v != "v" ||
					err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if n := f.loads.Load(); n != 0 {
			t.Errorf("%d loads without the lock", n)
		}
		if n := f.locker.get(func(f *fake) int { return f.asked }) - before; n > 200 {
			t.Errorf("in 10 s the locker was asked %d times", n)
		}
		freed := time.Now()
		must(t, held.Unlock(t.Context()))
		all.Wait()
		if took := time.Since(freed); took > time.Second {
			t.Errorf("after the lock was free it took %v", took)
		}
		if n := f.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// If a load ends without telling the store, as the load of a process without a cache, its lock
// lasts as long as its lease.
func TestLockEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		k := cacheguard.Key{Cache: "c", Key: "k"}
		token := cacheguard.ID{1}
		a, err := f.stores[0].Lease(t.Context(), k,
			cacheguard.LeaseAsk{Token: token, TTL: time.Second})
		must(t, err)
		// The load asks again, as if the first answer had been lost.
		again, err := f.stores[0].Lease(t.Context(), k,
			cacheguard.LeaseAsk{Token: token, TTL: time.Second})
		must(t, err)
		if again.State != cacheguard.LeaseGranted || !again.Grant.Is(a.Grant) {
			t.Errorf("asked again it got %v", again)
		}
		time.Sleep(900 * time.Millisecond)
		_, err = f.stores[0].Renew(t.Context(), k, a.Grant, time.Second)
		must(t, err)
		time.Sleep(900 * time.Millisecond)
		if n := f.locker.heldNow(); n != 1 {
			t.Errorf("%d locks are held while the lease lasts", n)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if n := f.locker.heldNow(); n != 0 {
			t.Errorf("%d locks are held after it", n)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, nil)
		go func() { _, _ = f.caches[0].Get(context.Background(), "k", f.load("v", time.Hour)) }()
		synctest.Wait()
		must(t, f.stores[0].Close())
		if n := f.locker.heldNow(); n != 0 {
			t.Errorf("%d locks are left", n)
		}
		must(t, f.stores[0].Close())
		asked := f.locker.get(func(f *fake) int { return f.asked })
		if v, err := f.caches[0].Get(t.Context(), "another", f.load("v", time.Second)); v != "v" ||
			err != nil {
			t.Errorf("after Close: %q, %v", v, err)
		}
		if n := f.locker.get(func(f *fake) int { return f.asked }) - asked; n != 0 {
			t.Errorf("after Close the locker was asked %d times", n)
		}
		_ = f.caches[0].Close()
	})
}

func TestNewRefuses(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	if s, err := lockstore.New(nil, nil, lockstore.Options{Patience: -1}); s != nil || err == nil ||
		!strings.Contains(err.Error(), "store is nil") ||
		!strings.Contains(err.Error(), "locker is nil") ||
		!strings.Contains(err.Error(), "Patience") {
		t.Errorf("New: %v, %v", s, err)
	}
	for _, s := range []*lockstore.Store{
		lockstore.Wrap(nil, newFake()), lockstore.Wrap(memory, nil),
		lockstore.Wrap((*memstore.Store)(nil), newFake()),
	} {
		if c, err := cacheguard.New(s, cacheguard.Options[string]{Name: "c"}); c != nil ||
			err == nil {
			t.Errorf("a cache on it: %v, %v", c, err)
		}
		must(t, s.Close())
	}
}

// FuzzLockNames shows that no two keys have the same lock, and that a locker accepts the name of
// every key's lock.
func FuzzLockNames(f *testing.F) {
	f.Add("c", "k", "c{k", "")
	f.Add("c", strings.Repeat("x", 600), "c", strings.Repeat("x", 601))
	f.Add("c", "", "", "}")
	memory := memstore.New(memstore.Options{})
	f.Cleanup(func() { memory.Close() })
	f.Fuzz(func(t *testing.T, cacheA, keyA, cacheB, keyB string) {
		a, b := cacheguard.Key{Cache: cacheA, Key: keyA}, cacheguard.Key{Cache: cacheB, Key: keyB}
		var names []string
		for _, k := range []cacheguard.Key{a, b} {
			if _, err := cacheguard.New(memory,
				cacheguard.Options[string]{Name: k.Cache}); err != nil {
				t.Skip("no cache has this name")
			}
			locker := newFake()
			s := lockstore.Wrap(memory, locker)
			token := cacheguard.ID{1}
			if _, err := s.Lease(t.Context(), k,
				cacheguard.LeaseAsk{Token: token, TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			must(t, s.Release(t.Context(), k, token))
			must(t, s.Close())
			names = append(names, locker.names[0])
		}
		if (names[0] == names[1]) != (a == b) {
			t.Errorf("%q and %q have the locks %q and %q", a, b, names[0], names[1])
		}
		if len(names[0]) > lock.MaxName {
			t.Errorf("%q has %d bytes", names[0], len(names[0]))
		}
	})
}
