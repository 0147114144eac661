package redislock_test

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// suiteLease is long enough for a busy machine, and short enough that tests can wait for its end.
const suiteLease = 500 * time.Millisecond

const suitePrefix = "suite"

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		return overProxy(t, server.Addr(), redislock.Options{}, nil)
	})
}

func TestConformanceFair(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		return overProxy(t, server.Addr(), redislock.Options{Fair: true}, nil)
	})
}

// TestConformanceDefaultClient uses clients that ignore contexts.
func TestConformanceDefaultClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		return overProxy(t, server.Addr(), redislock.Options{}, func(o *redis.Options) {
			o.ContextTimeoutEnabled = false
		})
	})
}

// TestConformanceCluster runs on three masters. It has no proxy, because the clients of a cluster
// would go around it.
func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		return openFleet(t, site{Addrs: cluster.Addrs(), Cluster: true})
	})
}

func TestConformanceSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, 1, 1)
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		// Each locker dials the Sentinels, too.
		return openFleet(t, site{
			Addrs: sentinel.Addrs(), Sentinel: true,
			Options: redislock.Options{Lease: 2 * suiteLease},
		})
	})
}

// TestConformanceMiniredis leaves out the case that holds some hundred locks at once, because under
// the race detector miniredis is too slow to renew all of them.
func TestConformanceMiniredis(t *testing.T) {
	t.Parallel()
	for _, c := range locktest.Cases() {
		if c.Name == "names: any bytes" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			server := miniredis.RunT(t)
			server.ClockTTL(true)
			c.Run(t,
				openFleet(t, site{
					Addrs:   []string{server.Addr()},
					Options: redislock.Options{Lease: 2 * suiteLease},
				}))
		})
	}
}

// openFleet opens the lockers of three processes.
func openFleet(t *testing.T, s site) locktest.Fleet {
	t.Helper()
	s.Options = suiteOptions(s.Options)
	f := locktest.Fleet{
		Lease: s.Options.Lease, Fenced: true, Reentrant: true, Process: s.config(),
		Longer: func(lease time.Duration) locktest.Fleet {
			s.Options.Lease = lease
			return openFleet(t, s)
		},
	}
	for range 3 {
		rdb := s.client()
		connect(rdb)
		f.Lockers = append(f.Lockers, open(t, rdb, s.Options))
	}
	operator := s.client()
	t.Cleanup(func() { operator.Close() })
	f.Steal = func(name string) {
		if err := operator.Del(context.Background(),
			redislock.LockName(suitePrefix, name)).Err(); err != nil {
			t.Error(err)
		}
	}
	return f
}

// overProxy opens the lockers of three processes. The first is connected through a proxy that can
// be cut.
func overProxy(
	t *testing.T, addr string, opts redislock.Options, change func(*redis.Options),
) locktest.Fleet {
	t.Helper()
	f := openFleet(t, site{Addrs: []string{addr}, Options: opts})
	f.Longer = func(lease time.Duration) locktest.Fleet {
		opts.Lease = lease
		return overProxy(t, addr, opts, change)
	}
	proxy := redistest.StartProxy(t, addr)
	o := redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true}
	if change != nil {
		change(&o)
	}
	rdb := redis.NewClient(&o)
	connect(rdb)
	f.Lockers[0] = open(t, rdb, suiteOptions(opts))
	f.Cut = func() func() {
		proxy.Blackhole(true)
		return func() { proxy.Blackhole(false); proxy.Cut() }
	}
	f.LoseReply = func() {
		proxy.DropReply(redistest.IsEval(redislock.AcquireScript), redistest.Hangup)
	}
	return f
}

func suiteOptions(o redislock.Options) redislock.Options {
	o.Prefix, o.Lease, o.OpTimeout = suitePrefix, max(o.Lease, suiteLease), max(o.Lease, suiteLease)
	return o
}

// open returns a locker on a separate client. Both are closed at the end of the test. The default
// of OpTimeout is longer than outside of tests, because on a busy machine dialling takes long.
func open(t *testing.T, rdb redis.UniversalClient, opts redislock.Options) *redislock.Locker {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.OpTimeout == 0 {
		opts.OpTimeout = min(cmp.Or(opts.Lease, 10*time.Second), 10*time.Second)
	}
	l, err := redislock.New(rdb, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = rdb.Close() })
	return l
}

var _ lock.Locker = (*redislock.Locker)(nil)
