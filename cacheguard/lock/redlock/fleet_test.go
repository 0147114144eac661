package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	patience = 20 * time.Second // the time limit for events that must happen
	prefix   = "cgredlock"

	untilTheEnd = 10 * time.Minute // longer than any test that uses it
)

// site is five masters, with a proxy to each that can be cut.
type site struct {
	servers []*redistest.Server
	proxies []*redistest.Proxy
	direct  []*redis.Client // not through the proxies
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	for range 5 {
		server := redistest.Start(t)
		s.servers = append(s.servers, server)
		s.proxies = append(s.proxies, redistest.StartProxy(t, server.Addr()))
		rdb := newClient(t, server.Addr())
		must(t, rdb.Ping(t.Context()).Err())
		s.direct = append(s.direct, rdb)
	}
	return s
}

func newClient(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// opts returns options with timeouts that a busy machine can meet.
func opts() redlock.Options { return leased(50 * time.Second) }

// leased returns options with a lease, and with the longest timeout that New accepts for it.
func leased(lease time.Duration) redlock.Options {
	return redlock.Options{Lease: lease, NodeTimeout: lease / 10, Logger: quiet}
}

// brisk returns options for tests in which masters don't reply, or in which locks end. The lockers
// get more time for a request than New accepts. See openOn.
func brisk() redlock.Options {
	return redlock.Options{Lease: 8 * time.Second, NodeTimeout: briskTimeout, Logger: quiet}
}

const briskTimeout = 799 * time.Millisecond

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// open opens a locker with its own connections, like that of a separate process. It connects
// directly, or through the given proxies. On a busy machine a first request takes longer than
// NodeTimeout, so the masters that run have connections and scripts already.
func (s *site) open(t *testing.T, o redlock.Options, wires ...*redistest.Proxy) *redlock.Locker {
	t.Helper()
	clients := s.clients(t, wires...)
	var all sync.WaitGroup
	for i, rdb := range clients {
		if s.servers[i].Pid() == 0 {
			continue
		}
		all.Go(func() {
			err := greeted(t.Context(), rdb, 3)
			for _, script := range []string{
				redlock.AcquireScript, redlock.RenewScript, redlock.ReleaseScript,
			} {
				err = errors.Join(err, rdb.ScriptLoad(t.Context(), script).Err())
			}
			if err != nil {
				t.Errorf("master %d: %v", i, err)
			}
		})
	}
	all.Wait()
	return openOn(t, o, clients)
}

// clients returns a new client of each master.
func (s *site) clients(t *testing.T, wires ...*redistest.Proxy) (clients []*redis.Client) {
	for i, server := range s.servers {
		addr := server.Addr()
		if wires != nil {
			addr = wires[i].Addr()
		}
		clients = append(clients, newClient(t, addr))
	}
	return clients
}

// openOn opens a locker on these clients.
func openOn(t *testing.T, o redlock.Options, clients []*redis.Client) *redlock.Locker {
	t.Helper()
	var masters []redis.UniversalClient
	for _, rdb := range clients {
		masters = append(masters, rdb)
	}
	l, err := redlock.New(masters, o)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	l.SetWarmTimeout(patience)
	if o.NodeTimeout == briskTimeout { // a busy machine needs more
		l.SetNodeTimeout(timeoutOf(o.Lease))
	}
	return l
}

// wired is like open, through the site's proxies.
func (s *site) wired(t *testing.T, o redlock.Options) *redlock.Locker {
	return s.open(t, o, s.proxies...)
}

// refuse makes masters refuse new connections, and closes the existing connections.
func (s *site) refuse(t *testing.T, masters ...int) {
	t.Helper()
	for _, i := range masters {
		must(t, s.proxies[i].Refuse(true))
		s.proxies[i].Cut()
	}
}

// holders returns for each master the claim that has the lock there. "" means no claim, and "-"
// means that the master doesn't run.
func (s *site) holders(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	for i, rdb := range s.direct {
		if s.servers[i].Pid() == 0 {
			all = append(all, "-")
			continue
		}
		value, err := rdb.Get(t.Context(), prefix+":"+name).Result()
		if errors.Is(err, redis.Nil) {
			value, err = "", nil
		}
		must(t, err)
		all = append(all, value[:min(len(value), 24)])
	}
	return all
}

// count returns how many of these masters have a lock.
func (s *site) count(t *testing.T, name string, masters ...int) (n int) {
	t.Helper()
	holders := s.holders(t, name)
	for _, i := range masters {
		if len(holders[i]) > 1 {
			n++
		}
	}
	return n
}

// everywhere waits until one claim has the lock on all masters: Lock and Unlock return as soon as a
// majority has replied, so others may still have an earlier claim.
func (s *site) everywhere(t *testing.T, name string) {
	t.Helper()
	waittest.Until(t, "all masters have "+name, func() bool {
		holders := slices.Compact(s.holders(t, name))
		return len(holders) == 1 && len(holders[0]) > 1
	})
}

// nothingLeft waits until no master has a part of a lock. This must happen long before the lock
// ends by itself.
func (s *site) nothingLeft(t *testing.T, name string) {
	t.Helper()
	waittest.Until(t, "nothing is left of "+name, func() bool {
		return s.count(t, name, 0, 1, 2, 3, 4) == 0
	})
}

// outages are the ways in which a master can be away. Each function begins an outage and returns a
// function that ends it.
var outages = map[string]func(t *testing.T, s *site, i int) (back func()){
	"killed": func(t *testing.T, s *site, i int) func() {
		s.servers[i].Kill()
		return func() { must(t, s.servers[i].Restart()) }
	},
	"stopped": func(t *testing.T, s *site, i int) func() {
		must(t, s.servers[i].Pause())
		return func() { must(t, s.servers[i].Resume()) }
	},
	"cut off": func(_ *testing.T, s *site, i int) func() {
		s.proxies[i].Blackhole(true)
		return func() { s.proxies[i].Blackhole(false) }
	},
	"refused": func(t *testing.T, s *site, i int) func() {
		must(t, s.proxies[i].Refuse(true))
		s.proxies[i].Cut()
		return func() { must(t, s.proxies[i].Refuse(false)) }
	},
}

func get(t *testing.T, l lock.Locker, name string) lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	held, err := l.Lock(ctx, name)
	if err != nil {
		t.Fatalf("Lock of %q: %v", name, err)
	}
	return held
}

// getMany acquires n locks, 16 at a time: one after another they take long on a busy machine.
func getMany(t *testing.T, l lock.Locker, n int) []lock.Lock {
	t.Helper()
	const atOnce = 16
	held := make([]lock.Lock, n)
	var all sync.WaitGroup
	for first := range atOnce {
		all.Go(func() {
			for i := first; i < n; i += atOnce {
				var err error
				if held[i], err = l.Lock(t.Context(), fmt.Sprint(i)); err != nil {
					t.Errorf("Lock of %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return held
}

// works waits until a locker works. On a busy machine this may take a moment.
func works(t *testing.T, l lock.Locker) {
	t.Helper()
	waittest.Until(t, "it works", func() bool {
		held, err := l.TryLock(t.Context(), "warm")
		return err == nil && held.Unlock(t.Context()) == nil
	})

}

// warm prepares a locker.
func warm(t *testing.T, l interface{ Warm(context.Context) error }) {
	t.Helper()
	must(t, warmed(t, l))
}

// warmed returns the error of Warm. If the machine is too busy for Warm, Warm is called again.
func warmed(t testing.TB, l interface{ Warm(context.Context) error }) (err error) {
	t.Helper()
	waittest.Until(t, "it is warm", func() bool {
		err = l.Warm(t.Context())
		return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded)
	})
	return err
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: %v; want %v", what, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass: until a lease or a time-out has ended, while something must not happen, or
// between the turns of a loop. It is never for something that must have happened afterwards.
func pass(d time.Duration) { <-time.After(d) }
