package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If the lock is free, Lock and Unlock take one round trip each.
func TestUncontendedRoundTrips(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
	// A step that isn't answered in time is repeated.
	l := locker(t, proxy.Addr(), redislock.Options{Lease: time.Hour, OpTimeout: patience})
	unlock(t, locked(t, l, "warm"))
	proxy.ResetCounts()
	const n = 10
	for range n {
		unlock(t, locked(t, l, "n"))
	}
	counts := proxy.Counts()
	maps.DeleteFunc(counts, func(name string, _ int64) bool {
		// Of connections and the subscription.
		return name == "PING" || name == "SUBSCRIBE" || name == "HELLO" ||
			strings.HasPrefix(name, "CLIENT")
	})
	if !maps.Equal(counts, map[string]int64{"EVALSHA": 2 * n}) {
		t.Errorf("%d times Lock and Unlock took %v", n, counts)
	}
}

// Lock and Unlock run the commands that the documentation names.
func TestUncontendedCommands(t *testing.T) {
	const n = 10
	usual := map[string]int64{
		"EVALSHA": 2 * n, "GET": n, "TIME": n, "SET": 3 * n, "ZREM": n, "ZPOPMIN": n, "DEL": n,
	}
	fair := maps.Clone(usual)
	fair["GET"], fair["ZRANGE"] = 2*n, n
	early := maps.Clone(usual)
	delete(early, "ZREM")
	for what, c := range map[string]struct {
		opts  redislock.Options
		early bool // before any call has waited
		want  map[string]int64
	}{
		"usual": {want: usual},
		"fair":  {opts: redislock.Options{Fair: true}, want: fair},
		"early": {early: true, want: early},
	} {
		t.Run(what, func(t *testing.T) {
			addr := redistest.Start(t).Addr()
			rdb := client(t, addr)
			// A step that isn't answered in time is repeated.
			c.opts.Lease, c.opts.OpTimeout = time.Hour, patience
			l := open(t, client(t, addr), c.opts)
			if !c.early {
				must(t, l.Warm(t.Context()))
			}
			unlock(t, locked(t, l, "n"))
			must(t, redistest.ResetStats(t.Context(), rdb))
			for range n {
				unlock(t, locked(t, l, "n"))
			}
			stats, err := redistest.CommandStats(t.Context(), rdb)
			must(t, err)
			maps.DeleteFunc(stats, func(name string, _ int64) bool {
				// Commands of the subscription and of this test.
				return name == "PING" || strings.HasPrefix(name, "CONFIG") || name == "INFO"
			})
			if !maps.Equal(stats, c.want) {
				t.Errorf("%d times Lock and Unlock took %v; want %v", n, stats, c.want)
			}
		})
	}
}

// If Redis stops responding while a step runs on its caller's goroutine, the call notices the end
// of its context after OpTimeout at the latest. The next call notices it at once.
func TestContextEndsWhileRedisIsSilent(t *testing.T) {
	const opTimeout = 6 * time.Second
	proxy := redistest.StartProxy(t, redistest.Shared(t).Addr())
	l := locker(t, proxy.Addr(),
		redislock.Options{Prefix: "silent", Lease: time.Hour, OpTimeout: opTimeout})
	held := locked(t, l, "n")
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	for i, what := range []struct {
		is   string
		most time.Duration
		do   func(ctx context.Context) error
	}{
		{"the first Lock", opTimeout, func(ctx context.Context) error {
			_, err := l.Lock(ctx, "m")
			return err
		}},
		{"the next Lock", opTimeout / 4, func(ctx context.Context) error {
			_, err := l.Lock(ctx, "m")
			return err
		}},
		{"Unlock", opTimeout / 4, held.Unlock},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		began := time.Now()
		err := what.do(ctx)
		took := time.Since(began)
		if !errors.Is(err, context.Canceled) && !(i == 0 && err != nil) {
			t.Errorf("%s: %v", what.is, err)
		}
		if took > what.most+opTimeout/2 { // for a busy machine
			t.Errorf("%s noticed the end of its context after %v; want %v at most", what.is, took,
				what.most)
		}
	}
}

// A hand-over takes one message to one process, and one step, however many processes wait.
func TestHandOverWakesOne(t *testing.T) {
	for _, fair := range []bool{true, false} {
		for _, waiting := range []int{2, 16} {
			t.Run(fmt.Sprint(fair, waiting), func(t *testing.T) {
				const prefix, name = "wakes", "n"
				addr := redistest.Shared(t).Addr()
				rdb := client(t, addr)
				opts := redislock.Options{
					Prefix: prefix, Fair: fair, Lease: time.Hour, OpTimeout: patience,
				}
				held := locked(t, locker(t, addr, opts), name)
				var waits []*call
				for i := range waiting {
					waits = append(waits, calls(t.Context(), locker(t, addr, opts), name))
					line(t, rdb, prefix, name, i+1)
				}
				must(t, redistest.ResetStats(t.Context(), rdb))
				unlock(t, held)
				woken := (*call)(nil)
				waittest.Until(t, "one of them has it", func() bool {
					i := slices.IndexFunc(waits, (*call).returned)
					if i >= 0 {
						woken = waits[i]
					}
					return i >= 0
				})

				line(t, rdb, prefix, name, waiting-1) // all others still wait
				stats, err := redistest.CommandStats(t.Context(), rdb)
				must(t, err)
				if stats["PUBLISH"] != 1 || stats["EVALSHA"] != 1 {
					t.Errorf("one hand-over with %d waiting took %d messages and %d steps; want 1 and 1",
						waiting, stats["PUBLISH"], stats["EVALSHA"])
				}
				unlock(t, woken.lock(t))
				for range waits[1:] {
					var next lock.Lock
					waittest.Until(t, "the next one has it", func() bool {
						for i, c := range waits {
							if c != woken && c.returned() && c.held.Err() == nil {
								next, waits[i] = c.held, woken
								return true
							}
						}
						return false
					})

					unlock(t, next)
				}
			})
		}
	}
}
