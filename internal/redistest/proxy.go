package redistest

import (
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Proxy is a TCP proxy in front of a Redis server that understands what
// passes: which reply belongs to which command, in RESP2 and RESP3, with
// pub/sub and push messages in between. Faults are armed in it by predicate,
// see DropReply and the other methods that return a Fault.
//
// The predicates are asked for each command of every client, in the order in
// which the faults were armed; the first fault that matches takes the
// command. They are called one at a time, so one that counts needs no lock.
// They must not wait for traffic through the proxy, nor cut or close it.
//
// It takes commands as arrays only, as all clients send them, and of at most
// 256 MiB; replies have no limit but Redis' own. CLIENT REPLY OFF and
// MONITOR are beyond it. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	addr   string
	hole   hole
	slow   atomic.Int64 // nanoseconds that each command takes longer

	deciding sync.Mutex     // makes predicates run one at a time
	work     sync.WaitGroup // the connections
	door     sync.Mutex     // makes Refuse and Close one after the other

	mu       sync.Mutex // guards all below, and the state of each Fault
	faults   []*Fault   // armed or taken, in the order of arming
	conns    map[*conn]struct{}
	counts   map[string]int64
	breach   error // the first breach of protocol
	listener *listener
	closed   bool
}

// listener is the open door of a proxy.
type listener struct {
	net.Listener
	done chan struct{} // closed when nobody accepts any more
}

// NewProxy starts a proxy on a loopback port of its own to the server at
// target. The server need not be there: while it isn't, connections to the
// proxy are accepted and closed.
func NewProxy(target string) (*Proxy, error) {
	l, err := childproc.ListenAnywhere()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: target,
		addr:   l.Addr().String(),
		conns:  make(map[*conn]struct{}),
		counts: make(map[string]int64),
	}
	p.open(l)
	return p, nil
}

// Addr is host:port for clients, the same for the proxy's whole life.
func (p *Proxy) Addr() string { return p.addr }

// Close closes the proxy with all its connections and waits until everything
// has ended. It returns the first breach of protocol that made the proxy
// close a connection, if there was one.
func (p *Proxy) Close() error {
	p.door.Lock()
	defer p.door.Unlock()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.shut()
	p.Cut()
	p.work.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	return p.breach
}

// Cut closes all connections, to clients and to the server, and returns when
// they are closed. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	conns := maps.Clone(p.conns)
	p.mu.Unlock()
	for c := range conns {
		c.end()
	}
	for c := range conns {
		<-c.ended
	}
}

// Blackhole turns the blackhole on or off. While it is on, connections are
// accepted and stay open, old and new, and nothing passes in either
// direction; a command or reply that is already passing may get through. When
// it is turned off what was sent meanwhile arrives, as when a network heals.
func (p *Proxy) Blackhole(on bool) { p.hole.set(on) }

// Slow has each command arrive at the server that much later, one after
// another on each connection, so that a client that gives up has its commands
// carried out all the same. Zero ends that for the commands that
// come then.
func (p *Proxy) Slow(by time.Duration) { p.slow.Store(int64(by)) }

// Refuse turns refusing on or off. While it is on there is no listener, so
// new connections are refused by the kernel; the existing ones go on, use Cut
// to end them. Turned off, the proxy listens on the same port again; the
// error is then that of listening, or ErrStopped after Close.
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
		return ErrStopped
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

// Counts returns how many commands were forwarded from clients to the server
// since the start or ResetCounts, by name in upper case. Released commands
// are not among them.
func (p *Proxy) Counts() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// ResetCounts sets the counters to zero.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

func (p *Proxy) count(c Command) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[c.Name]++
}

// note keeps the first breach of protocol; other errors are connections that
// end.
func (p *Proxy) note(err error) {
	var breach protocolError
	if !errors.As(err, &breach) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.breach == nil {
		p.breach = breach
	}
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
		c := newConn(p, client)
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		p.work.Go(c.serve)
	}
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
