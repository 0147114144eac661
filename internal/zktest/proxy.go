package zktest

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Proxy is a TCP proxy in front of a ZooKeeper server. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	addr   string
	work   sync.WaitGroup // the connections
	door   sync.Mutex     // makes Refuse and Close one after the other

	mu       sync.Mutex // guards all below
	hole     chan struct{}
	links    map[*link]struct{}
	faults   []*Fault
	requests []Request
	events   int
	listener *listener
	closed   bool
}

// listener is the open door of a proxy.
type listener struct {
	net.Listener
	done chan struct{} // closed when nobody accepts any more
}

// NewProxy starts a proxy on a loopback port of its own to the server at target. While there is
// none, connections to the proxy are accepted and closed.
func NewProxy(target string) (*Proxy, error) {
	l, err := childproc.ListenAnywhere()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, addr: l.Addr().String(), links: make(map[*link]struct{})}
	p.open(l)
	return p, nil
}

// StartProxy starts a proxy for one test and closes it when the test ends.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := NewProxy(target)
	if err != nil {
		tb.Fatalf("zktest: proxy: %v", err)
		return nil
	}
	tb.Cleanup(p.Close)
	return p
}

// Addr is host:port for clients, the same for the proxy's whole life.
func (p *Proxy) Addr() string { return p.addr }

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
		l.end()
	}
	for l := range links {
		<-l.ended
	}
}

// Blackhole turns the blackhole on or off. While it is on, connections are accepted and stay open,
// old and new, and nothing passes in either direction; what is already passing may get through.
// When it is turned off what was sent meanwhile arrives.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.hole == nil:
		p.hole = make(chan struct{})
	case !on && p.hole != nil:
		close(p.hole)
		p.hole = nil
	}
}

// Refuse turns refusing on or off. While it is on there is no listener, so new connections are
// refused by the kernel; the existing ones go on, use Cut to end them. Turned off, the proxy
// listens on the same port again.
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

// Requests returns all requests that were forwarded since the start or Reset, in their order on
// each connection.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Events returns how many events of watches were forwarded to clients since the start or Reset.
func (p *Proxy) Events() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events
}

// Reset forgets Requests and Events.
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

// lifted is closed when the blackhole ends; it is nil if there is none.
func (p *Proxy) lifted() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hole
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
			<-time.After(childproc.PollInterval) // one client less: it has gone again, or we are out of files
			continue
		}
		l := newLink(p, client)
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.work.Go(l.serve)
	}
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
