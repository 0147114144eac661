package guardtest

import (
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// RedisServer starts a redis-server for this test only, empty and without persistence, on a free
// loopback port. It returns the server's host:port. The server stops when the test ends.
// RedisServer uses the redis-server on the PATH. If there is none, the test is skipped. If the
// environment has CACHEGUARD_TEST=full, the test fails instead. Set it for builds that must not
// skip any test.
func RedisServer(tb testing.TB) (addr string) {
	tb.Helper()
	return redistest.Start(tb).Addr()
}

// Proxy sits between a program and its Redis, and disturbs their traffic as networks do. A client
// of the program under test dials [Proxy.Addr] instead of the server. Every disturbance except
// DropReply applies to all connections of the Proxy.
//
// A Proxy parses the traffic, so that it can lose the reply to a chosen command. Each command must
// be an array, as all clients send it, of at most 256 MiB. CLIENT REPLY OFF and MONITOR are not
// supported. The methods are safe for concurrent use. A Proxy uses real TCP, so it can't be used in
// a synctest bubble.
type Proxy struct {
	tb    testing.TB
	proxy *redistest.Proxy
}

// NewProxy starts a proxy on its own loopback port, to the server at target, which is host:port.
// The server needn't run yet. When the test ends, the proxy and all its connections are closed. The
// proxy closes a connection early if the traffic is not Redis' protocol. Then the test fails at its
// end.
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

// Addr returns the host:port for clients. It stays the same until the test ends.
func (p *Proxy) Addr() string { return p.proxy.Addr() }

// Delay delays each command from now on by the given time before it reaches the server. The
// commands of one connection are delayed one after another. If a client gives up, the server still
// carries its command out. Zero turns the delay off.
func (p *Proxy) Delay(by time.Duration) { p.proxy.Slow(by) }

// Cut closes all connections, to clients and to the server, and returns when they are closed. New
// connections are accepted.
func (p *Proxy) Cut() { p.proxy.Cut() }

// Blackhole turns a blackhole on or off. While it is on, no traffic passes in either direction:
// connections are accepted and stay open, but get no answers. When it is turned off, the data that
// was sent in the meantime arrives, as when a network recovers.
func (p *Proxy) Blackhole(on bool) { p.proxy.Blackhole(on) }

// Refuse makes the proxy refuse new connections while it is on, as when no server listens on the
// port. Open connections continue. Use [Proxy.Cut] to end them. Refuse and Cut together act like a
// server that is down.
func (p *Proxy) Refuse(on bool) {
	p.tb.Helper()
	if err := p.proxy.Refuse(on); err != nil {
		p.tb.Fatalf("guardtest: Refuse(%v): %v", on, err)
	}
}

// DropReply loses the reply to the next command that matches. The server carries the command out,
// but the client receives no more data on this connection, which stays open. Each call of DropReply
// loses only one reply.
//
// match gets the words of the command, the first of them in upper case ("GET", "EVALSHA"), and must
// not change or keep them. It is asked about each command of any client until it returns true. It
// isn't asked about a command that an earlier DropReply takes. Only one call of match runs at a
// time, so match may count without a lock. It must not use the Proxy. A nil match fails the test
// with tb.Fatalf.
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

// Loss is a reply that a [Proxy] will lose.
type Loss struct {
	tb     testing.TB
	struck <-chan struct{}
}

// Await returns when the reply is lost. By then the server has carried the command out. If the
// reply is not lost within a minute, Await fails the test with tb.Fatalf, so call it only on the
// test's goroutine.
func (l *Loss) Await() {
	l.tb.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-l.struck:
	case <-timeout.C:
		l.tb.Fatalf(
			"guardtest: awaited the loss of a reply, saw no reply to a command that matches within %v",
			patience)
	}
}
