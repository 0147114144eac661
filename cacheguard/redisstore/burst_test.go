package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	burstLoads = 20                    // how many loads may run at a time
	burstTakes = 50 * time.Millisecond // a load
)

// Thousands of different keys are requested at once, as after a flush of the cache or by a bot.
// MaxLoads of them are loaded at a time, and the queue is bounded. Callers that find the queue full
// get an error or a stale value. When the burst is over, no memory or goroutine of it is left.
func TestManyKeysAtOnce(t *testing.T) {
	for _, test := range []struct {
		name   string
		queue  int // the length of the queue for slots; 0: a short queue, so that the test is fast
		change func(s *site)
		begin  func(b *burst, t *testing.T)
		check  func(b *burst, t *testing.T)
		end    func(b *burst, t *testing.T)
	}{
		{
			name:   "cold keys",
			queue:  64 * burstLoads,
			change: func(s *site) { s.cache.MaxLoads, s.cache.Limiter = burstLoads, nil },
			check: func(b *burst, t *testing.T) {
				b.wantFilledQueue(t)
				b.wantStoreUsed(t)
			},
		},
		{
			name: "stale keys, if error",
			change: func(s *site) {
				s.cache.TTL, s.cache.StaleIfError = time.Millisecond, time.Hour
			},
			begin: (*burst).storeAll,
			check: func(b *burst, t *testing.T) {
				b.wantNoErrors(t)
				b.wantStoreUsed(t)
				for i, a := range b.answers {
					if a.res.Status == cacheguard.StatusStale &&
						!errors.Is(a.res.Err, cacheguard.ErrOverloaded) {
						t.Fatalf("caller %d was served a stale value because of %v; want %v", i,
							a.res.Err, cacheguard.ErrOverloaded)
					}
				}
			},
		},
		{
			name: "stale keys, while revalidated",
			change: func(s *site) {
				s.cache.TTL, s.cache.StaleWhileRevalidate = time.Millisecond, time.Hour
			},
			begin: (*burst).storeAll,
			check: func(b *burst, t *testing.T) {
				b.wantNoErrors(t)
				b.wantStoreUsed(t)
			},
		},
		{
			name:   "Redis refuses connections",
			change: func(s *site) { s.store.OpTimeout = outageOp },
			begin: func(b *burst, t *testing.T) {
				must(t, b.proxy.Refuse(true))
				b.proxy.Cut()
			},
			check: (*burst).wantFilledQueue,
			end:   func(b *burst, t *testing.T) { must(t, b.proxy.Refuse(false)) },
		},
		{
			name:   "Redis doesn't answer",
			change: func(s *site) { s.store.OpTimeout = outageOp },
			begin:  func(b *burst, _ *testing.T) { b.proxy.Blackhole(true) },
			check:  (*burst).wantFilledQueue,
			end:    func(b *burst, _ *testing.T) { b.proxy.Blackhole(false) },
		},
		{
			name: "Redis is out of memory",
			begin: func(b *burst, t *testing.T) {
				must(t,
					newClient(t, b.server.Addr()).ConfigSet(t.Context(), "maxmemory", "1").Err())
			},
			check: (*burst).wantFilledQueue,
			end: func(b *burst, t *testing.T) {
				must(t,
					newClient(t, b.server.Addr()).ConfigSet(t.Context(), "maxmemory", "0").Err())
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBurst(t, cmp.Or(test.queue, 10*burstLoads), test.change)
			if test.begin != nil {
				test.begin(b, t)
			}
			b.fire(t)
			test.check(b, t)
			over := time.Now() // the callers are done; refreshes in the background may go on
			if test.end != nil {
				test.end(b, t)
			}
			b.wantNormal(t)
			normal := time.Since(over)
			b.figures(t, test.name, normal)
			b.wantNothingLeft(t)
		})
	}
}

// burst is a set of callers of one replica. Each wants a key of its own.
type burst struct {
	*replica
	server  *redistest.Server
	proxy   *redistest.Proxy
	answers []answer
	queue   int

	goroutines int // before
	heap       uint64

	loads, running, most atomic.Int64
}

func newBurst(t *testing.T, queue int, change func(s *site)) *burst {
	t.Helper()
	b := &burst{server: redistest.Start(t), answers: make([]answer, burstKeys), queue: queue}
	b.proxy = redistest.StartProxy(t, b.server.Addr())
	if change == nil {
		change = func(*site) {}
	}
	b.replica = newReplica(t, b.proxy.Addr(), newPrefix(), func(s *site) {
		s.cache.LeaseTTL, s.cache.LoadTimeout = 0, longLease
		s.cache.Limiter = cacheguard.NewLimiter(burstLoads, queue)
	}, change)
	b.listens(t)
	// The runtime keeps memory of ended goroutines, which must not be counted for the burst.
	crowdOnce()
	b.goroutines, b.heap = len(ours()), heapInUse()
	return b
}

// storeAll stores a value for each key. The values are stale when the callers come.
func (b *burst) storeAll(t *testing.T) {
	t.Helper()
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < burstKeys; i += 8 {
				if err := b.cache.Set(t.Context(), fmt.Sprint(i), "old"); err != nil {
					t.Errorf("Set: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	waittest.Until(t, "the youngest value is stale", func() bool {
		res, err := b.cache.Peek(t.Context(), fmt.Sprint(burstKeys-1))
		return err == nil && res.Status == cacheguard.StatusStale
	})

}

func (b *burst) fire(t *testing.T) {
	t.Helper()
	start := make(chan struct{})
	var callers sync.WaitGroup
	for i := range b.answers {
		callers.Go(func() {
			<-start
			a, began := &b.answers[i], time.Now()
			a.res, a.err = b.cache.GetResult(context.Background(), fmt.Sprint(i), b.load)
			a.took = time.Since(began)
		})
	}
	close(start)
	callers.Wait()
}

func (b *burst) load(ctx context.Context) (string, error) {
	b.loads.Add(1)
	now := b.running.Add(1)
	defer b.running.Add(-1)
	for most := b.most.Load(); now > most &&
		!b.most.CompareAndSwap(most, now); most = b.most.Load() {
	}
	timer := time.NewTimer(burstTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return "new", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// wantFilledQueue checks that each caller without a value got ErrOverloaded, and that no caller got
// this error while there was room.
func (b *burst) wantFilledQueue(t *testing.T) {
	t.Helper()
	served := 0
	for i, a := range b.answers {
		switch {
		case a.err == nil && a.res.Value == "new":
			served++
		case !errors.Is(a.err, cacheguard.ErrOverloaded):
			t.Fatalf("caller %d got %q, %v; want %v", i, a.res.Value, a.err,
				cacheguard.ErrOverloaded)
		}
	}
	if served < burstLoads+b.queue {
		t.Errorf("%d callers were served; there was room for %d", served, burstLoads+b.queue)
	}
}

// wantStoreUsed checks that every caller could use the store, which works.
func (b *burst) wantStoreUsed(t *testing.T) {
	t.Helper()
	without := 0
	for _, a := range b.answers {
		if a.res.Degraded {
			without++
		}
	}
	if n := b.events.of(cacheguard.EventStoreError); without > 0 || n > 0 {
		t.Errorf("%d callers were served without the store, which had %d errors; want none, for it works",
			without, n)
	}
}

func (b *burst) wantNoErrors(t *testing.T) {
	t.Helper()
	wrong := 0
	for i, a := range b.answers {
		if a.err != nil {
			if wrong++; wrong < 4 {
				t.Errorf("caller %d got %v; there is a stale value", i, a.err)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d callers got an error", wrong)
	}
}

// wantNormal returns when a new key is loaded under its lease and then found, and when callers that
// come together share one load.
func (b *burst) wantNormal(t *testing.T) {
	t.Helper()
	waittest.Until(t, "a new key is loaded and stored", func() bool {
		key := newPrefix()
		a := b.get(t, key, b.load)
		if a.err != nil || a.res.Degraded {
			return false
		}
		res, err := b.cache.Peek(t.Context(), key)
		return err == nil && res.Value == "new"
	})

}

func (b *burst) figures(t *testing.T, fault string, normal time.Duration) {
	t.Helper()
	figures(t, fmt.Sprintf("%d keys at once: %s", burstKeys, fault), b.loads.Load(), normal,
		b.answers...)
	stale, degraded := 0, 0
	for _, a := range b.answers {
		if a.res.Status == cacheguard.StatusStale {
			stale++
		}
		if a.res.Degraded {
			degraded++
		}
	}
	t.Logf("at most %d loads at a time; %d callers were served a stale value, %d without the store",
		b.most.Load(), stale, degraded)
}

// wantNothingLeft checks that memory and goroutines are as they were.
func (b *burst) wantNothingLeft(t *testing.T) {
	t.Helper()
	// Bytes, of connections' buffers and of keys that are remembered for a while, 4,096 at most.
	const few = 6 << 20
	b.answers = nil
	waittest.Until(t, "the goroutines of the burst are gone", func() bool {
		return len(ours()) <= b.goroutines
	})
	if most := b.most.Load(); most > burstLoads {
		t.Errorf("%d loads ran at a time; want %d at most", most, burstLoads)
	}
	var heap uint64
	waittest.Until(t, "the memory of the burst is free", func() bool {
		heap = heapInUse()
		return heap <= b.heap+few
	})
	t.Logf("in use were %d kB before the burst and %d kB after it; %d goroutines of the library's own",
		b.heap>>10, heap>>10, b.goroutines)
}

// crowdOnce starts as many goroutines as a burst has.
func crowdOnce() {
	gate := make(chan struct{})
	var all sync.WaitGroup
	for range 2 * burstKeys {
		all.Go(func() { <-gate })
	}
	close(gate)
	all.Wait()
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection empties the pools
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
