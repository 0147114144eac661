package guardtest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// soon is long enough for a local Redis on a busy machine, and short enough for a wait in vain.
const soon = 300 * time.Millisecond

// newClient returns a client that doesn't retry and obeys its contexts.
func newClient(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func ping(t *testing.T, rdb *redis.Client, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return rdb.Ping(ctx).Err()
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func TestRedisServer(t *testing.T) {
	one, other := guardtest.RedisServer(t), guardtest.RedisServer(t)
	if host, _, err := net.SplitHostPort(one); err != nil || host != "127.0.0.1" || one == other {
		t.Errorf("servers at %q and %q", one, other)
	}
	if err := newClient(t, one).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if n, err := newClient(t, other).DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("a new server has %d keys, %v", n, err)
	}
}

func TestProxyBreaksTheWire(t *testing.T) {
	server := guardtest.RedisServer(t)
	for name, fault := range map[string]struct {
		begin, end func(p *guardtest.Proxy)
		cut        bool // connections are lost
		timeout    bool // nobody answers
	}{
		"nothing": {},
		"cut":     {begin: (*guardtest.Proxy).Cut, cut: true},
		"blackhole": {func(p *guardtest.Proxy) { p.Blackhole(true) }, func(p *guardtest.Proxy) {
			p.Blackhole(false)
		}, false, true},
		"slow": {func(p *guardtest.Proxy) { p.Delay(time.Hour) }, func(p *guardtest.Proxy) {
			p.Delay(0)
			p.Cut()
		}, false, true},
		"no newcomers": {func(p *guardtest.Proxy) { p.Refuse(true) }, func(p *guardtest.Proxy) {
			p.Refuse(false)
		}, false, false},
		"down": {func(p *guardtest.Proxy) { p.Refuse(true); p.Cut() }, func(p *guardtest.Proxy) {
			p.Refuse(false)
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := guardtest.NewProxy(t, server)
			rdb := newClient(t, p.Addr())
			if err := ping(t, rdb, time.Minute); err != nil {
				t.Fatal(err)
			}
			raw, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if err := raw.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := raw.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(raw, make([]byte, len("+PONG\r\n"))); err != nil {
				t.Fatal(err)
			}
			if fault.begin != nil {
				fault.begin(p)
			}
			if fault.timeout {
				if err := ping(t, rdb, soon); !timedOut(err) {
					t.Errorf("ping: %v; want no answer", err)
				}
			}
			if fault.cut {
				if n, err := raw.Read(make([]byte, 1)); err == nil || timedOut(err) {
					t.Errorf("read %d bytes, %v, of a connection that was to be cut", n, err)
				}
			}
			if conn, err := net.Dial("tcp", p.Addr()); (err != nil) != (name == "down" ||
				name == "no newcomers") {
				t.Errorf("a new connection: %v", err)
			} else if err == nil {
				_ = conn.Close()
			}
			if name == "no newcomers" {
				if err := ping(t, rdb, time.Minute); err != nil {
					t.Errorf("on an old connection: %v", err)
				}
			}
			if fault.end != nil {
				fault.end(p)
			}
			_ = ping(t, rdb, time.Minute) // on a connection that may have been cut
			if err := ping(t, rdb, time.Minute); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestProxyDelays(t *testing.T) {
	p := guardtest.NewProxy(t, guardtest.RedisServer(t))
	rdb := newClient(t, p.Addr())
	if err := ping(t, rdb, time.Minute); err != nil {
		t.Fatal(err)
	}
	p.Delay(soon)
	began := time.Now()
	if err := ping(t, rdb, time.Minute); err != nil || time.Since(began) < soon {
		t.Errorf("%v after %v; want at least %v", err, time.Since(began), soon)
	}
}

// The command whose reply is lost was carried out, and one reply is lost for each call.
func TestProxyDropsAReply(t *testing.T) {
	server := guardtest.RedisServer(t)
	p := guardtest.NewProxy(t, server)
	rdb := newClient(t, p.Addr())
	var seen []string
	loss := p.DropReply(func(command []string) bool {
		seen = append(seen, strings.Join(command, " "))
		return command[0] == "INCR" && command[1] == "k"
	})
	if n, err := rdb.Incr(t.Context(), "other").Result(); n != 1 || err != nil {
		t.Errorf("another key: %d, %v", n, err)
	}
	raw, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n")); err != nil {
		t.Fatal(err)
	}
	loss.Await()
	_ = raw.SetReadDeadline(time.Now().Add(soon))
	if n, err := raw.Read(make([]byte, 1)); !timedOut(err) {
		t.Errorf("read %d bytes, %v; want no reply", n, err)
	}
	if last := seen[max(0, len(seen)-2):]; !slices.Equal(last, []string{"INCR other", "INCR k"}) {
		t.Errorf("the commands that were looked at are %q", seen)
	}
	if n, err := rdb.Incr(t.Context(), "k").Result(); n != 2 || err != nil {
		t.Errorf("the next one: %d, %v; want its reply", n, err)
	}
	if n, err := newClient(t, server).Get(t.Context(), "k").Int(); n != 2 || err != nil {
		t.Errorf("the server has %d, %v; want 2, both were carried out", n, err)
	}
}

func TestLossFailsClearly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		struck := make(chan struct{})
		asTest(func(tb testing.TB) { guardtest.NewLoss(tb, struck).Await() }).diesWith(t,
			"awaited the loss of a reply, saw no reply to a command that matches within 1m0s")
		close(struck)
		asTest(func(tb testing.TB) { guardtest.NewLoss(tb, struck).Await() }).goesWell(t)
	})
}

func TestProxyMisused(t *testing.T) {
	asTest(func(tb testing.TB) {
		guardtest.NewProxy(tb, "127.0.0.1:1").DropReply(nil)
	}).diesWith(t, "DropReply: match is nil")
	var p *guardtest.Proxy
	over := asTest(func(tb testing.TB) { p = guardtest.NewProxy(tb, "127.0.0.1:1") })
	over.goesWell(t)
	asTest(func(testing.TB) { p.Refuse(false) })
	over.diesWith(t, "Refuse(false)")
}

// What isn't Redis' protocol is no silent end of a connection.
func TestProxyReportsABreachOfProtocol(t *testing.T) {
	f := asTest(func(tb testing.TB) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		p := guardtest.NewProxy(tb, l.Addr().String())
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		_, _ = io.ReadAll(conn) // until the proxy closes it
	})
	if len(f.errors) != 1 || !strings.Contains(f.errors[0], "a proxy closed a connection") {
		t.Errorf("it said %q", f.errors)
	}
}

// The kit's parts together: replicas on a real Redis, one of them behind a proxy. A replica that
// can't be told of a change keeps what it has; once it hears again it looks again.
func TestFleetOnRedis(t *testing.T) {
	server := guardtest.RedisServer(t)
	proxy := guardtest.NewProxy(t, server)
	var stores []cacheguard.Store
	for _, addr := range []string{server, server, proxy.Addr()} {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if err := store.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
	}
	var rec guardtest.Recorder
	opts := silent()
	opts.Observer, opts.LeaseTTL = &rec, time.Minute
	fleet := guardtest.NewFleet(t, 3, opts, stores...)
	o := guardtest.NewOrigin(t, shout)
	open := o.Hold()
	answers := make(chan guardtest.Answers[string], 1)
	go func() { answers <- fleet.Stampede(t.Context(), "k", 10, o.Load("k")) }()
	rec.Await(t, cacheguard.EventLeaseAsked, 3) // each replica has
	open()
	if err := (<-answers).Err(); err != nil || o.Loads() != 1 {
		t.Errorf("%v, %d loads: %v", err, o.Loads(), &rec)
	}

	// The lease is granted, and its reply is lost: the replica finds its own lease.
	loss := proxy.DropReply(func(command []string) bool { return command[0] == "EVALSHA" })
	v, err := fleet.Replica(2).Get(t.Context(), "another", o.Load("another"))
	if v != "another!" || err != nil || o.Loads("another") != 1 {
		t.Errorf("%q, %v after %d loads", v, err, o.Loads("another"))
	}
	loss.Await()
}
