package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// A server that is silent or away costs OpTimeout, and a caller that leaves leaves at once.
func TestDown(t *testing.T) {
	const op = 200 * time.Millisecond
	server := redistest.Start(t)
	for name, harm := range map[string]func(p *redistest.Proxy) error{
		"silent":  func(p *redistest.Proxy) error { p.Blackhole(true); return nil },
		"refuses": func(p *redistest.Proxy) error { defer p.Cut(); return p.Refuse(true) },
	} {
		for _, looks := range []bool{true, false} { // at contexts
			t.Run(name, func(t *testing.T) {
				proxy := newProxy(t, server.Addr())
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: looks})
				t.Cleanup(func() { _ = rdb.Close() })
				l := open(t, rdb, redislock.Options{OpTimeout: op})
				unlock(t, locked(t, l, "n"))
				must(t, harm(proxy))
				defer proxy.Blackhole(false)
				began := time.Now()
				held, err := l.Lock(t.Context(), "n")
				took := time.Since(began)
				if err == nil {
					t.Errorf("it has %v", held)
				}
				if took > 10*op {
					t.Errorf("it took %v", took)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a caller without a deadline gets %v", err)
				}
			})
		}
	}
}

// Whoever leaves gets its context's error at once, also in the middle of a step that gets no
// answer.
func TestLeavesAtOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := newProxy(t, server.Addr())
	l := locker(t, proxy.Addr(), redislock.Options{OpTimeout: patience, Lease: 2 * patience})
	ctx, cancel := context.WithCancel(t.Context())
	gate := make(chan struct{})
	stuck := proxy.DelayReply(redistest.IsEval(redislock.AcquireScript), gate)
	c := calls(ctx, l, "n")
	select {
	case <-stuck.Struck():
	case <-time.After(patience):
		t.Fatal("no question")
	}
	cancel()
	<-c.done // the answer still isn't there
	if !errors.Is(c.err, context.Canceled) {
		t.Errorf("Lock says %v", c.err)
	}
	close(gate) // it had the lock, and gives it back
	unlock(t, locked(t, locker(t, server.Addr(), redislock.Options{}), "n"))
}

// Those who wait sit out a restart of the server, for one lease.
func TestWaitsThroughRestart(t *testing.T) {
	const prefix, name = "restart", "n"
	server := redistest.Start(t)
	opts := redislock.Options{Prefix: prefix, Lease: patience, OpTimeout: time.Second}
	a, b := locker(t, server.Addr(), opts), locker(t, server.Addr(), opts)
	locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, client(t, server.Addr()), prefix, name, 1)
	must(t, server.Restart()) // it has forgotten all
	unlock(t, waits.lock(t))
}

// What lasts for longer is the answer to those who wait.
func TestWaitsNoLongerThanALease(t *testing.T) {
	const prefix, name = "nolonger", "n"
	server := redistest.Start(t)
	opts := redislock.Options{Prefix: prefix, Lease: time.Second, OpTimeout: 100 * time.Millisecond}
	a, b := locker(t, server.Addr(), opts), locker(t, server.Addr(), opts)
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, client(t, server.Addr()), prefix, name, 1)
	server.Kill()
	select {
	case <-waits.done:
	case <-time.After(patience):
		t.Fatal("it waits on")
	}
	if waits.err == nil {
		t.Error("it has the lock")
	}
	<-held.Lost()
	if err := held.Unlock(t.Context()); err == nil {
		t.Error("it could give it back")
	}
}
