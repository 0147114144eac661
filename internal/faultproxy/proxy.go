// Package faultproxy is a TCP proxy in front of a server: it cuts connections, swallows what is
// sent, and refuses. What passes over a connection is the business of packages such as redistest,
// which lose a reply by what they know of their protocol.
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
	addr   string
	carry  func(*Link)
	work   sync.WaitGroup // the links
	door   sync.Mutex     // makes Refuse and Close one after the other

	mu       sync.Mutex    // guards all below
	lift     chan struct{} // closed when the blackhole ends, nil while there is none
	links    map[*Link]struct{}
	listener *listener
	closed   bool
}

// listener is the open door of a proxy.
type listener struct {
	net.Listener
	done chan struct{} // closed when nobody accepts any more
}

// New starts a proxy on a loopback port of its own to the server at target. It calls carry for each
// connection, which ends when carry returns: see [Link.Carry]. The server need not be there. While
// it isn't, connections to the proxy are accepted and closed.
func New(target string, carry func(*Link)) (*Proxy, error) {
	l, err := childproc.ListenAnywhere()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, addr: l.Addr().String(), carry: carry, links: make(map[*Link]struct{})}
	p.open(l)
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

// Addr is host:port for clients, the same for the proxy's whole life.
func (p *Proxy) Addr() string { return p.addr }

// Target is host:port of the server.
func (p *Proxy) Target() string { return p.target }

// Close closes the proxy with all its connections and waits until everything has ended.
func (p *Proxy) Close() {
	p.door.Lock()
	defer p.door.Unlock()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.shut()
	p.Cut()
	p.work.Wait()
}

// Cut closes all connections, to clients and to the server, and returns when they are closed. New
// ones are accepted.
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

// Links is how many connections of clients there are.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Blackhole turns the blackhole on or off. While it is on, connections are accepted and stay open,
// old and new, and nothing passes in either direction; what is already passing may get through.
// When it is turned off what was sent meanwhile arrives, as when a network heals.
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

// lifted is closed when the blackhole ends; it is nil if there is none.
func (p *Proxy) lifted() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lift
}

// Refuse turns refusing on or off. While it is on there is no listener, so new connections are
// refused by the kernel; the existing ones go on, use Cut to end them. Turned off, the proxy
// listens on the same port again; the error is then that of listening, or childproc.ErrStopped
// after Close.
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
		l, err := net.Listen("tcp", p.addr)
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

// shut closes the listener and returns when nobody accepts any more.
func (p *Proxy) shut() {
	p.mu.Lock()
	door := p.listener
	p.listener = nil
	p.mu.Unlock()
	if door != nil {
		_ = door.Close() // all it can say is that it is closed
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
			// One client less: it has gone again, or we are out of files.
			<-time.After(childproc.PollInterval)
			continue
		}
		p.link(client)
	}
}
