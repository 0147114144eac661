package pgtest

import (
	"net"
	"sync"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

// Proxy is a proxy in front of a server. Bytes pass unchanged until a reply must be lost. Its
// methods are safe for concurrent use.
type Proxy struct {
	*faultproxy.Proxy

	mu   sync.Mutex // guards the fields below, and each wire
	lose func(sent []byte) bool
	lost chan struct{}
}

// wire is one connection of a client.
type wire struct {
	*faultproxy.Link
	mute   bool // the server's data no longer reaches the client
	struck chan struct{}
}

// StartProxy starts a proxy for one test, on its own loopback port, to the server at target. The
// server need not run. The proxy is closed when the test ends.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{}
	p.Proxy = faultproxy.Start(tb, target, p.carry)
	return p
}

// LoseReply waits for the next data from a client for which match returns true. These data reach
// the server, but from then on no data of the server reach the client on this connection. lost is
// closed when the first data are lost. match gets the data of one read, which are one or several
// messages of the protocol.
func (p *Proxy) LoseReply(match func(sent []byte) bool) (lost <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost = match, make(chan struct{})
	return p.lost
}

// Executes is for LoseReply. It matches the execution of a statement with parameters. It can't
// match statements without parameters, because they look like pings.
func Executes(sent []byte) bool { return sent[0] == 'B' }

// carry serves a connection until it ends.
func (p *Proxy) carry(l *faultproxy.Link) {
	w := &wire{Link: l}
	w.Carry(
		func() { p.copy(w, w.Server, w.Client, p.sent) },
		func() { p.copy(w, w.Client, w.Server, p.reply) },
	)
}

// copy forwards the data that tells allows, and ends the wire when one side has closed its
// connection.
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
