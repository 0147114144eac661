package pgtest

import (
	"net"
	"sync"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

// Proxy is a wire in front of a server: bytes pass as they are, until something is to go wrong. Its
// methods are safe for concurrent use.
type Proxy struct {
	*faultproxy.Proxy

	mu   sync.Mutex // guards what follows, and each wire
	lose func(sent []byte) bool
	lost chan struct{}
}

// wire is one connection of a client.
type wire struct {
	*faultproxy.Link
	mute   bool // the server is not heard any more
	struck chan struct{}
}

// StartProxy starts a proxy for one test, on a loopback port of its own, to the server at target,
// which need not be there. It is closed when the test ends.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{}
	p.Proxy = faultproxy.Start(tb, target, p.carry)
	return p
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

// carry is the life of a connection.
func (p *Proxy) carry(l *faultproxy.Link) {
	w := &wire{Link: l}
	w.Carry(
		func() { p.copy(w, w.Server, w.Client, p.sent) },
		func() { p.copy(w, w.Client, w.Server, p.reply) },
	)
}

// copy passes on what tells allows, and ends the wire when one side is gone.
func (p *Proxy) copy(w *wire, to, from net.Conn, tells func(*wire, []byte) bool) {
	defer w.End()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !w.Pass() {
				return
			}
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
