package zktest

import (
	"errors"
	"slices"
	"sync"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

// Proxy is a TCP proxy in front of a ZooKeeper server. Its methods are safe for concurrent use.
type Proxy struct {
	*faultproxy.Proxy

	mu       sync.Mutex // guards the fields below
	faults   []*Fault
	requests []Request
	events   int
}

// StartProxy starts a proxy for one test, on its own loopback port, to the server at target. The
// server need not run. The proxy is closed when the test ends.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{}
	p.Proxy = faultproxy.Start(tb, target, p.carry)
	return p
}

// Requests returns all requests that were forwarded since the start or since Reset, in their order
// on each connection.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Events returns how many events of watches were forwarded to clients since the start or since
// Reset.
func (p *Proxy) Events() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// Reset removes all Requests and Events.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.events = nil, 0
}

func (p *Proxy) noteEvent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events++
}

// RestartBehind restarts a server while its proxy refuses all connections. A server that is not
// ready yet may accept a connection and never read from it, because closing a connection fails
// while the server has no database (a NullPointerException in ZooKeeperServer.removeCnxn). Its
// client would wait for an answer until several session times are over.
func RestartBehind(p *Proxy, s *Server) error {
	if err := p.Refuse(true); err != nil {
		return err
	}
	p.Cut()
	return errors.Join(s.Restart(), p.Refuse(false))
}
