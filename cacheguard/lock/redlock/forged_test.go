package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
)

// says checks that the text of an error contains what it must contain.
func says(t *testing.T, err error, what ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, part := range what {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("nothing about %q in: %v", part, err)
		}
	}
}

// One server with two names isn't two masters. Warm returns an error that says so. Without Warm the
// first call returns it.
func TestOneServerByTwoNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, port, err := net.SplitHostPort(s.servers[0].Addr())
	must(t, err)
	twice := []string{"127.0.0.1:" + port, "localhost:" + port}
	for name, addrs := range map[string][]string{
		"of three": {twice[0], twice[1], s.servers[1].Addr()},
		"apart":    {twice[0], s.servers[1].Addr(), twice[1]},
		"of four":  {twice[0], s.servers[1].Addr(), s.servers[2].Addr(), twice[1]},
	} {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprint(name, warm), func(t *testing.T) {
				var masters []redis.UniversalClient
				for _, addr := range addrs {
					masters = append(masters, newClient(t, addr))
				}
				o := opts()
				o.Lease = time.Hour // no test waits until this lease is over
				l, err := redlock.New(masters, o)
				must(t, err)
				defer l.Close()
				l.SetWarmTimeout(patience)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for range 3 {
					if warm {
						err = warmed(t, l)
					} else {
						_, err = l.Lock(ctx, name)
					}
					says(t, err, "are one server", twice[0], twice[1])
				}
				_, err = l.TryLock(t.Context(), name)
				says(t, err, "are one server")
				// The seized lock isn't given back.
				_, err = l.SeizeUnsafely(t.Context(), "seized "+t.Name())
				says(t, err, "are one server")
			})
		}
	}
	// Three servers are never taken for fewer, even if several callers ask at the same moment.
	l := s.open(t, opts())
	warm(t, l)
	must(t, get(t, l, "k").Unlock(t.Context()))
}

// If another program has written to the key of a lock, the error names the key.
func TestForgedKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := brisk()
	l := s.open(t, o)
	set := func(n int, name string, put func(rdb *redis.Client, key string) error) string {
		key := prefix + ":" + name
		for _, rdb := range s.direct[:n] {
			must(t, put(rdb, key))
		}
		return key
	}
	list := func(rdb *redis.Client, key string) error {
		return rdb.LPush(t.Context(), key, "x").Err()
	}
	hand := func(rdb *redis.Client, key string) error {
		return rdb.Set(t.Context(), key, "1", 0).Err()
	}

	key := set(3, "list", list)
	_, err := l.Lock(t.Context(), "list")
	says(t, err, fmt.Sprintf("%q", key), "string", "delete it")

	years := func(rdb *redis.Client, key string) error {
		return rdb.Set(t.Context(), key, "1", 10000*time.Hour).Err()
	}
	for name, put := range map[string]func(*redis.Client, string) error{
		"hand": hand, "years": years,
	} {
		key = set(3, name, put)
		for _, ask := range []func(context.Context, string) (lock.Lock, error){l.Lock, l.TryLock} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_, err := ask(ctx, name)
			cancel()
			says(t, err, fmt.Sprintf("%q", key), "no end", "3 of 5 masters", "SeizeUnsafely")
			if !errors.Is(err, lock.ErrHeld) {
				t.Error(err)
			}
		}
	}
	seized, err := l.SeizeUnsafely(t.Context(), "hand")
	must(t, err)
	must(t, seized.Unlock(t.Context()))

	set(2, "minority", hand) // doesn't hinder any call
	must(t, get(t, l, "minority").Unlock(t.Context()))
}

// user returns a client of a user with the documented rights. change takes rights away.
func user(t *testing.T, admin *redis.Client, change ...any) *redis.Client {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/locks.md")
	must(t, err)
	found := regexp.MustCompile(`(?m)^ACL SETUSER redlock (.*)$`).FindSubmatch(doc)
	rule := []any{"ACL", "SETUSER", "locks", "reset"}
	for _, word := range strings.Fields(string(found[1])) {
		rule = append(rule, word)
	}
	must(t, admin.Do(t.Context(), append(rule, change...)...).Err())
	rdb := redis.NewClient(&redis.Options{
		Addr: admin.Options().Addr, Username: "locks", Password: "secret",
		ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Warm names all missing rights and the master on which they are missing. A call names the first
// missing right that it needs.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, change := range [][]string{
		{}, {"-get", "-set"}, {"-append", "-pttl", "-pexpire", "-del"}, {"-evalsha"}, {"-eval"},
		{"-ping"}, {"-subscribe"},
	} {
		t.Run(fmt.Sprint(change), func(t *testing.T) {
			var masters []redis.UniversalClient
			for _, admin := range s.direct {
				var rule []any
				for _, word := range change {
					rule = append(rule, word)
				}
				masters = append(masters, user(t, admin, rule...))
			}
			l, err := redlock.New(masters, opts())
			must(t, err)
			defer l.Close()
			l.SetNodeTimeout(patience)
			l.SetWarmTimeout(patience)
			err = warmed(t, l)
			for _, right := range change {
				says(t, err, "master 4: the Redis user lacks", "+"+right[1:])
			}
			held, asked := l.TryLock(t.Context(), "k")
			switch {
			case len(change) == 0:
				must(t, err)
				must(t, asked)
				must(t, held.Unlock(t.Context()))
			case change[0] == "-get":
				says(t, asked, "lacks +get:")
			case asked == nil:
				_ = held.Unlock(t.Context())
			}
		})
	}
}

// Even if the other masters are a majority, Warm names the rights that the user of one master
// lacks.
func TestOneMasterLacksARight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	masters := []redis.UniversalClient{
		user(t, s.direct[0]), user(t, s.direct[1], "-get"), user(t, s.direct[2]),
	}
	l, err := redlock.New(masters, opts())
	must(t, err)
	defer l.Close()
	l.SetNodeTimeout(patience)
	l.SetWarmTimeout(patience)
	says(t, warmed(t, l), "master 1: the Redis user lacks +get")
	must(t, get(t, l, "k").Unlock(t.Context()))
}

// Even if the other masters are a majority, Warm names the master that is a replica. Locks work
// without its vote.
func TestOneMasterIsAReplica(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// No server has this address.
	must(t, s.direct[1].ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	l := s.open(t, opts())
	says(t, warmed(t, l), "master 1: this is a replica, which can't be written to")
	must(t, get(t, l, "k").Unlock(t.Context()))
	if n := s.count(t, "k", 1); n > 0 {
		t.Error("the replica has the lock")
	}
	must(t, s.direct[1].ReplicaOf(t.Context(), "NO", "ONE").Err())
	warm(t, l)
}

// gated counts the running requests that have this script's hash, and delays them until the gate is
// open.
type gated struct {
	hash        string
	gate        chan struct{}
	under, peak atomic.Int64
	seen        atomic.Int64 // the total number
}

func (g *gated) DialHook(next redis.DialHook) redis.DialHook { return next }
func (g *gated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gated) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !slices.Contains(cmd.Args(), any(g.hash)) {
			return next(ctx, cmd)
		}
		g.seen.Add(1)
		now := g.under.Add(1)
		defer g.under.Add(-1)
		for old := g.peak.Load(); now > old &&
			!g.peak.CompareAndSwap(old, now); old = g.peak.Load() {
		}
		<-g.gate
		return next(ctx, cmd)
	}
}

// If many locks are renewed or given back at the same moment, they don't wait for each other's
// connections until NodeTimeout is over.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for what, script := range map[string]string{
		"release": redlock.ReleaseScript, "renewal": redlock.RenewScript,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			// No lock may end before all want to renew theirs.
			for lease := 30 * time.Second; lease <= 2*time.Minute; lease *= 2 {
				if manyAtOnce(t, what, script, lease) {
					return
				}
				t.Logf("with leases of %v it takes too long", lease)
			}
			t.Error("it takes too long with each lease")
		})
	}
}

// manyAtOnce returns false if something took too long for this lease.
func manyAtOnce(t *testing.T, what, script string, lease time.Duration) bool {
	const n, most = 200, 16
	s := newSite(t)
	g := &gated{hash: redis.NewScript(script).Hash(), gate: make(chan struct{})}
	open := sync.OnceFunc(func() { close(g.gate) })
	var masters []redis.UniversalClient
	for i, server := range s.servers {
		c := newClient(t, server.Addr())
		if i == 0 {
			c.AddHook(g)
		}
		masters = append(masters, c)
	}
	l, err := redlock.New(masters[:3], leased(lease))
	must(t, err)
	defer func() { open(); must(t, l.Close()) }()
	// The second master delays these requests, too, so that no majority can reply.
	masters[1].(*redis.Client).AddHook(&gated{hash: g.hash, gate: g.gate})
	l.SetNodeTimeout(lease) // no request may end before the gate opens
	began := time.Now()
	held := getMany(t, l, n)
	if time.Since(began) > lease/6 {
		return false
	}
	late := func() bool { return time.Since(began) > lease*3/4 }
	done := make(chan error, n)
	for _, h := range held {
		if what == "release" {
			go func() { done <- h.Unlock(context.Background()) }()
		}
	}
	for g.under.Load() < most && !late() {
		pass(time.Millisecond)
	}
	doesNotWantTo := func(h lock.Lock) bool {
		return h.Err() == nil && time.Until(h.Until()) > lease/2
	}
	for slices.ContainsFunc(held, doesNotWantTo) && !late() {
		pass(time.Millisecond)
	}
	for range 10 {
		must(t, s.direct[0].Ping(t.Context()).Err())
	}
	peak := g.peak.Load()
	if late() {
		return false // some locks may have ended, and their requests with them
	}
	if peak > most {
		t.Errorf("up to %d were under way at once; want %d at most", peak, most)
	}
	open()
	for range held {
		if what == "release" {
			must(t, <-done)
		}
	}
	return true
}

// The error for a used-up pool differs from the error for a master that doesn't reply.
func TestPoolIsUsedUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var masters []redis.UniversalClient
	for _, server := range s.servers {
		c := redis.NewClient(&redis.Options{
			Addr: server.Addr(), PoolSize: 1, ContextTimeoutEnabled: true, MaxRetries: -1,
		})
		t.Cleanup(func() { _ = c.Close() })
		conn := c.Conn()
		must(t, conn.Ping(t.Context()).Err())
		t.Cleanup(func() { _ = conn.Close() })
		masters = append(masters, c)
	}
	l, err := redlock.New(masters, redlock.Options{Logger: quiet})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	_, err = l.TryLock(t.Context(), "k")
	says(t, err, "all connections of the Redis client are in use (PoolSize 1)")
}
