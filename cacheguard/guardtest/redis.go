package guardtest

import (
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// RedisServer starts a redis-server of the test's own, empty and without persistence, on a free
// loopback port, and returns its host:port. It stops when the test ends. The redis-server is the
// one on the PATH; without one the test is skipped, or fails if the environment has
// CACHEGUARD_TEST=full, for a build that must not skip anything.
func RedisServer(tb testing.TB) (addr string) {
	tb.Helper()
	return redistest.Start(tb).Addr()
}

// Proxy stands between a program and its Redis, and does to their traffic what networks do. A
// client of the program under test dials Addr instead of the server. What a Proxy does holds for
// all of its connections.
//
// It understands what passes, so that it can lose one certain reply; commands have to come as
// arrays of at most 256 MiB, as all clients send them, without CLIENT REPLY OFF and MONITOR. Its
// methods are safe for concurrent use. It speaks real TCP, so it can't be used in a synctest
// bubble.
type Proxy struct {
	tb    testing.TB
	proxy *redistest.Proxy
}

// NewProxy starts a proxy to the server at target, which is host:port, on a loopback port of its
// own. The server need not be there yet. When the test ends the proxy is closed with all
// connections; if it had to close one before, because what passed was not Redis' protocol, that
// fails the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	proxy, err := redistest.NewProxy(target)
	if err != nil {
		tb.Fatalf("guardtest: NewProxy: %v", err)
	}
	tb.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			tb.Errorf("guardtest: a proxy closed a connection: %v", err)
		}
	})
	return &Proxy{tb: tb, proxy: proxy}
}

// Addr is host:port for clients, the same until the test ends.
func (p *Proxy) Addr() string { return p.proxy.Addr() }

// Delay has each command from now on arrive that much later at the server, one after another on
// each connection. A client that gives up has its command carried out all the same. Zero ends it.
func (p *Proxy) Delay(by time.Duration) { p.proxy.Slow(by) }

// Cut closes all connections, to clients and to the server, and returns when they are closed. New
// ones are accepted.
func (p *Proxy) Cut() { p.proxy.Cut() }

// Blackhole, while it is on, has nothing pass in either direction: connections are accepted and
// stay open, and nobody answers. Turned off, what was sent meanwhile arrives, as when a network
// heals.
func (p *Proxy) Blackhole(on bool) { p.proxy.Blackhole(on) }

// Refuse, while it is on, has new connections refused, as when nothing listens there. Those that
// are open go on: Cut ends them. Both together are a server that is down.
func (p *Proxy) Refuse(on bool) {
	p.tb.Helper()
	if err := p.proxy.Refuse(on); err != nil {
		p.tb.Fatalf("guardtest: Refuse(%v): %v", on, err)
	}
}

// DropReply loses the reply to the next command that matches: the server carries it out, the client
// hears nothing more on that connection, which stays open. Only one reply is lost for each call.
//
// match sees the command's words, the first of them in upper case ("GET", "EVALSHA"), and must not
// change or keep them. It is asked once for each command of all clients, one at a time, so it may
// count without a lock; it must not use the Proxy. A nil match fails the test with tb.Fatalf.
func (p *Proxy) DropReply(match func(command []string) bool) *Loss {
	p.tb.Helper()
	if match == nil {
		p.tb.Fatalf("guardtest: DropReply: match is nil")
	}
	fault := p.proxy.DropReply(func(c redistest.Command) bool { return match(words(c)) })
	return &Loss{tb: p.tb, struck: fault.Struck()}
}

func words(c redistest.Command) []string {
	words := []string{c.Name}
	for _, arg := range c.Args {
		words = append(words, string(arg))
	}
	return words
}

// Loss is a reply that a Proxy is to lose.
type Loss struct {
	tb     testing.TB
	struck <-chan struct{}
}

// Await returns when the reply is lost: the server has carried the command out by then. If that
// doesn't come true within a minute it fails the test with tb.Fatalf, so it belongs on the test's
// goroutine.
func (l *Loss) Await() {
	l.tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-l.struck:
	case <-timeout.C:
		l.tb.Fatalf("guardtest: awaited the loss of a reply, saw no reply to a command that matches within %v", patience)
	}
}
