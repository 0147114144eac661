package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// If a server is silent or away, a call takes OpTimeout. If the context of a call ends, the call
// returns at once.
func TestDown(t *testing.T) {
	t.Parallel() // it waits most of the time
	const op = 2 * time.Second
	server := redistest.Start(t)
	for name, harm := range map[string]func(p *redistest.Proxy) error{
		"silent":  func(p *redistest.Proxy) error { p.Blackhole(true); return nil },
		"refuses": func(p *redistest.Proxy) error { defer p.Cut(); return p.Refuse(true) },
	} {
		for _, looks := range []bool{true, false} { // whether the client looks at contexts
			t.Run(name, func(t *testing.T) {
				proxy := redistest.StartProxy(t, server.Addr())
				rdb := redis.NewClient(&redis.Options{
					Addr: proxy.Addr(), ContextTimeoutEnabled: looks,
				})
				t.Cleanup(func() { _ = rdb.Close() })
				l := open(t, rdb, redislock.Options{OpTimeout: op})
				// On a busy machine a connection may take longer than OpTimeout.
				waittest.Until(t, "it works", func() bool {
					held, err := l.Lock(t.Context(), "n")
					return err == nil && held.Unlock(t.Context()) == nil
				})
				must(t, harm(proxy))
				defer proxy.Blackhole(false)
				began := time.Now()
				held, err := l.Lock(t.Context(), "n")
				took := time.Since(began)
				if err == nil {
					t.Errorf("it has %v", held)
				}
				if took > 4*op {
					t.Errorf("it took %v", took)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a caller without a deadline gets %v", err)
				}
			})
		}
	}
}

// If the context of a call ends, the call returns the context's error at once, even in the middle
// of a step that gets no reply.
func TestLeavesAtOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
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
	close(gate) // Redis granted the lock, and the call gives it back
	unlock(t, locked(t, locker(t, server.Addr(), redislock.Options{}), "n"))
}

// Waiting calls tolerate a restart of the server, for one lease.
func TestWaitsThroughRestart(t *testing.T) {
	const prefix, name = "restart", "n"
	server := redistest.Start(t)
	opts := redislock.Options{Prefix: prefix, Lease: patience, OpTimeout: time.Second}
	a, b := locker(t, server.Addr(), opts), locker(t, server.Addr(), opts)
	locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, client(t, server.Addr()), prefix, name, 1)
	must(t, server.Restart()) // the server has lost all its data
	unlock(t, waits.lock(t))
}

// Trouble that lasts for longer than a lease is returned to the waiting calls as an error.
func TestWaitsNoLongerThanALease(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name = "nolonger", "n"
	server := redistest.Start(t)
	opts := redislock.Options{Prefix: prefix, Lease: 10 * time.Second}
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
