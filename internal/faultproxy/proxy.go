// Package faultproxy is a TCP proxy in front of a server. It can cut connections, swallow traffic,
// and refuse connections. It doesn't know the protocol of a connection. Packages such as redistest
// do, so they can lose a single reply.
package faultproxy

import (
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Proxy is a TCP proxy. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	port   *childproc.Port
	carry  func(*Link)
	work   sync.WaitGroup // the links
	door   sync.Mutex     // lets only one Refuse or Close run at a time

	mu       sync.Mutex    // guards the fields below
	lift     chan struct{} // closed when the blackhole ends; nil while there is no blackhole
	links    map[*Link]struct{}
	listener *listener
	closed   bool
}

// listener is the open door of a proxy.
type listener struct {
	net.Listener
	done chan struct{} // closed when the listener accepts no more connections
}

// New starts a proxy on its own loopback port to the server at target. It calls carry for each
// connection, and the connection ends when carry returns: see [Link.Carry]. The server need not
// run. While it doesn't run, connections to the proxy are accepted and closed.
func New(target string, carry func(*Link)) (*Proxy, error) {
	port, err := childproc.ReservePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, port: port, carry: carry, links: make(map[*Link]struct{})}
	if err := p.Refuse(false); err != nil {
		port.Release()
		return nil, err
	}
	return p, nil
}

// Start is New for one test, which closes the proxy when it ends.
func Start(tb childproc.TB, target string, carry func(*Link)) *Proxy {
	tb.Helper()
	p, err := New(target, carry)
	if err != nil {
		tb.Fatalf("%s needs a proxy: %v", tb.Name(), err)
		return nil
	}
	tb.Cleanup(p.Close)
	return p
}

// Addr returns host:port for clients. It stays the same for the proxy's whole life. No other server
// or proxy of the tests gets the port before Close.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Target returns host:port of the server.
func (p *Proxy) Target() string { return p.target }

// Close closes the proxy with all its connections and waits until everything has ended.
func (p *Proxy) Close() {
	p.door.Lock()
	defer p.door.Unlock()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.shut()
	p.port.Release()
	p.Cut()
	p.work.Wait()
}

// Cut closes all connections, to clients and to the server, and returns when they are closed. New
// connections are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := maps.Clone(p.links)
	p.mu.Unlock()
	for l := range links {
		l.End()
	}
	for l := range links {
		<-l.ended
	}
}

// Links returns the number of connections from clients.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Blackhole turns the blackhole on or off. While it is on, old connections stay open, new
// connections are accepted, and no data passes in either direction. Data that is already passing
// may get through. When the blackhole is turned off, the data that was sent meanwhile arrives, as
// when a network heals.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.lift == nil:
		p.lift = make(chan struct{})
	case !on && p.lift != nil:
		close(p.lift)
		p.lift = nil
	}
}

// lifted returns a channel that is closed when the blackhole ends, or nil if there is no blackhole.
func (p *Proxy) lifted() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lift
}

// Refuse turns refusing on or off. While it is on there is no listener, so the kernel refuses new
// connections. Existing connections go on; use Cut to end them. When refusing is turned off, the
// proxy listens on the same port again. The error is then the error of listening, or
// childproc.ErrStopped after Close.
func (p *Proxy) Refuse(on bool) error {
	p.door.Lock()
	defer p.door.Unlock()
	if on {
		p.shut()
		return nil
	}
	p.mu.Lock()
	open, closed := p.listener != nil, p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return childproc.ErrStopped
	case open:
		return nil
	}
	return childproc.UntilFree(func() error {
		l, err := p.port.Listen()
		if err == nil {
			p.open(l)
		}
		return err
	})
}

func (p *Proxy) open(l net.Listener) {
	door := &listener{Listener: l, done: make(chan struct{})}
	p.mu.Lock()
	p.listener = door
	p.mu.Unlock()
	go p.accept(door)
}

// shut closes the listener and returns when no more connections are accepted.
func (p *Proxy) shut() {
	p.mu.Lock()
	door := p.listener
	p.listener = nil
	p.mu.Unlock()
	if door != nil {
		_ = door.Close() // its only error is that it is already closed
		<-door.done
	}
}

func (p *Proxy) accept(door *listener) {
	defer close(door.done)
	for {
		client, err := door.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The client has gone again, or this process has no file descriptors left.
			<-time.After(childproc.PollInterval)
			continue
		}
		p.link(client)
	}
}
