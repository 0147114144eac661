package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// benchLocker returns a locker with its own connections, as if it were in a separate process.
func benchLocker(b *testing.B, servers []*redistest.Server, deaf bool) *redlock.Locker {
	b.Helper()
	var masters []redis.UniversalClient
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{
			Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		})
		b.Cleanup(func() { _ = rdb.Close() })
		if err := rdb.Ping(b.Context()).Err(); err != nil { // on a busy machine dialling takes time
			b.Fatal(err)
		}
		masters = append(masters, rdb)
	}
	l, err := redlock.New(masters, opts())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	l.SetWarmTimeout(patience)
	if deaf {
		l.Deaf()
	} else if err := warmed(b, l); err != nil {
		b.Fatal(err)
	}
	return l
}

func benchServers(b *testing.B, n int) (servers []*redistest.Server) {
	for range n {
		servers = append(servers, redistest.Start(b))
	}
	return servers
}

// BenchmarkUncontended measures Lock and Unlock of a lock that no other caller wants. For
// comparison it measures the two commands on one server, which are the lower limit.
func BenchmarkUncontended(b *testing.B) {
	servers := benchServers(b, 5)
	b.Run("floor", func(b *testing.B) {
		rdb := redis.NewClient(&redis.Options{
			Addr: servers[0].Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		})
		defer rdb.Close()
		for b.Loop() {
			if err := rdb.SetNX(b.Context(), "floor", "token", time.Minute).Err(); err != nil {
				b.Fatal(err)
			}
			if err := rdb.Del(b.Context(), "floor").Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprintf("%d masters", n), func(b *testing.B) {
			l := benchLocker(b, servers[:n], false)
			for b.Loop() {
				held, err := l.Lock(b.Context(), "k")
				if err == nil {
					err = held.Unlock(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// In BenchmarkHandover processes lock and unlock one name in turns, with messages and without. Each
// holds the lock for 2 ms. An operation is one hold. handover is the time from the Unlock of one
// process to the Lock of another process.
func BenchmarkHandover(b *testing.B) {
	servers := benchServers(b, 5)
	for _, processes := range []int{2, 4, 8} {
		for _, how := range []string{"woken", "polling"} {
			b.Run(fmt.Sprintf("%d processes/%s", processes, how), func(b *testing.B) {
				handovers(b, servers, processes, how == "polling")
			})
		}
	}
}

func handovers(b *testing.B, servers []*redistest.Server, processes int, deaf bool) {
	var lockers []*redlock.Locker
	for range processes {
		lockers = append(lockers, benchLocker(b, servers, deaf))
	}
	var (
		mu       sync.Mutex // guards the fields below
		left     = b.N
		last     = -1
		unlocked time.Time
		took     []time.Duration
		waits    []time.Duration
	)
	hold := func(i int) bool {
		began := time.Now()
		held, err := lockers[i].Lock(context.Background(), "k")
		if err != nil {
			b.Error(err)
			return false
		}
		mu.Lock()
		waits = append(waits, time.Since(began))
		if last >= 0 && last != i {
			took = append(took, time.Since(unlocked))
		}
		mu.Unlock()
		pass(2 * time.Millisecond)
		mu.Lock()
		last, unlocked = i, time.Now()
		left--
		more := left > 0
		mu.Unlock()
		if err := held.Unlock(context.Background()); err != nil {
			b.Error(err)
			return false
		}
		return more
	}
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			for hold(i) {
			}
		})
	}
	all.Wait()
	b.StopTimer()
	slices.Sort(waits)
	b.ReportMetric(ms(waits[len(waits)-1]), "most-wait-ms")
	if len(took) > 0 {
		slices.Sort(took)
		b.ReportMetric(ms(took[len(took)/2]), "handover-ms")
		b.ReportMetric(ms(took[len(took)*99/100]), "p99-handover-ms")
		b.ReportMetric(float64(len(took))/float64(len(waits)), "to-another")
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
