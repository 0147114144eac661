package pgtest

import (
	"net"
	"sync"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Proxy is a wire in front of a server: bytes pass as they are, until something is to go wrong. Its
// methods are safe for concurrent use.
type Proxy struct {
	target string
	door   net.Listener
	work   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	wires  map[*wire]struct{}
	lift   chan struct{} // closed when the blackhole ends; nil while there is none
	lose   func(sent []byte) bool
	lost   chan struct{}
	closed bool
}

// wire is one connection of a client.
type wire struct {
	client, server net.Conn
	mute           bool // the server is not heard any more; guarded by Proxy.mu
	struck         chan struct{}
}

// NewProxy starts a proxy on a loopback port of its own to the server at target, which need not be
// there.
func NewProxy(target string) (*Proxy, error) {
	door, err := childproc.ListenAnywhere()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, door: door, wires: make(map[*wire]struct{})}
	p.work.Go(p.accept)
	return p, nil
}

// StartProxy is NewProxy for one test.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := NewProxy(target)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
		return nil
	}
	tb.Cleanup(p.Close)
	return p
}

// Addr is host:port for clients.
func (p *Proxy) Addr() string { return p.door.Addr().String() }

// Close ends the proxy with all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.door.Close()
	p.Cut()
	p.Blackhole(false)
	p.work.Wait()
}

// Cut ends all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.wires {
		w.end()
	}
}

// Blackhole turns the blackhole on or off. While it is on, connections are accepted and stay open,
// and nothing passes. When it is turned off what was sent meanwhile arrives.
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

// LoseReply has the next thing that a client sends for which match is true reach the server, and
// nothing that the server says on that connection from then on reach the client. lost is closed
// when there is something that is lost. match gets what was read at once, which is one message of
// the protocol or several.
func (p *Proxy) LoseReply(match func(sent []byte) bool) (lost <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost = match, make(chan struct{})
	return p.lost
}

// Executes is for LoseReply: a statement with parameters is carried out. Those without are told
// from pings by nothing.
func Executes(sent []byte) bool { return sent[0] == 'B' }

func (p *Proxy) accept() {
	for {
		client, err := p.door.Accept()
		if err != nil {
			return // it is closed
		}
		p.work.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.passes()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	w := &wire{client: client, server: server}
	defer w.end()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.wires[w] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.wires, w)
		p.mu.Unlock()
	}()

	var replies sync.WaitGroup
	replies.Go(func() { p.copy(w, client, server, p.reply) })
	p.copy(w, server, client, p.sent)
	replies.Wait()
}

func (w *wire) end() {
	_ = w.client.Close()
	_ = w.server.Close()
}

// copy passes on what tells allows, and ends the wire when one side is gone.
func (p *Proxy) copy(w *wire, to, from net.Conn, tells func(*wire, []byte) bool) {
	defer w.end()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.passes()
			if tells(w, buffer[:n]) {
				if _, err := to.Write(buffer[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// passes returns when no blackhole is there.
func (p *Proxy) passes() {
	for {
		p.mu.Lock()
		lift := p.lift
		p.mu.Unlock()
		if lift == nil {
			return
		}
		<-lift
	}
}

func (p *Proxy) sent(w *wire, bytes []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose != nil && p.lose(bytes) {
		w.mute, w.struck = true, p.lost
		p.lose = nil
	}
	return true
}

func (p *Proxy) reply(w *wire, _ []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.mute && w.struck != nil {
		close(w.struck)
		w.struck = nil
	}
	return !w.mute
}
