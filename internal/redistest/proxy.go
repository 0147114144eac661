package redistest

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
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
	*faultproxy.Proxy
	slow atomic.Int64 // nanoseconds that each command takes longer

	deciding sync.Mutex // makes predicates run one at a time

	mu     sync.Mutex // guards all below, and the state of each Fault
	faults []*Fault   // armed or taken, in the order of arming
	counts map[string]int64
	breach error // the first breach of protocol
}

// NewProxy starts a proxy on a loopback port of its own to the server at
// target. The server need not be there: while it isn't, connections to the
// proxy are accepted and closed.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{counts: make(map[string]int64)}
	var err error
	p.Proxy, err = faultproxy.New(target, p.carry)
	return p, err
}

// Close closes the proxy with all its connections and waits until everything
// has ended. It returns the first breach of protocol that made the proxy
// close a connection, if there was one.
func (p *Proxy) Close() error {
	p.Proxy.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.breach
}

// Slow has each command arrive at the server that much later, one after
// another on each connection, so that a client that gives up has its commands
// carried out all the same. Zero ends that for the commands that
// come then.
func (p *Proxy) Slow(by time.Duration) { p.slow.Store(int64(by)) }

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
