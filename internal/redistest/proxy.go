package redistest

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

// Proxy is a TCP proxy in front of a Redis server that understands the protocol. It knows which
// reply belongs to which command, in RESP2 and RESP3, also with pub/sub and push messages in
// between. A predicate chooses the command of a fault, see DropReply and the other methods that
// return a Fault.
//
// The predicates are called for each command of every client, in the order in which the faults were
// armed. The first fault that matches takes the command. Only one predicate runs at a time, so a
// predicate that counts needs no lock. Predicates must not wait for traffic through the proxy, and
// must not cut or close the proxy.
//
// Commands must be arrays, as all clients send them, of at most 256 MiB. For replies only Redis'
// own limit applies. CLIENT REPLY OFF and MONITOR are not supported. Its methods are safe for
// concurrent use.
type Proxy struct {
	*faultproxy.Proxy
	slow atomic.Int64 // delay of each command in nanoseconds
	owed atomic.Int64 // the commands that were read and whose replies haven't reached the client

	deciding sync.Mutex // lets only one predicate run at a time

	mu     sync.Mutex // guards the fields below, and the state of each Fault
	faults []*Fault   // armed or taken, in the order of arming
	counts map[string]int64
	breach error // the first breach of protocol
}

// NewProxy starts a proxy on its own loopback port to the server at target. The server need not
// run. While it doesn't run, connections to the proxy are accepted and closed.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{counts: make(map[string]int64)}
	var err error
	p.Proxy, err = faultproxy.New(target, p.carry)
	return p, err
}

// Close closes the proxy with all its connections and waits until everything has ended. It returns
// the first breach of protocol that made the proxy close a connection, if there was one.
func (p *Proxy) Close() error {
	p.Proxy.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.breach
}

// Slow delays each command on its way to the server. The commands of one connection are delayed one
// after another. If a client gives up, its commands are still carried out. Zero ends the delay for
// later commands.
func (p *Proxy) Slow(by time.Duration) { p.slow.Store(int64(by)) }

// Idle reports whether each reply to a command that the proxy has forwarded has reached the client,
// or never will. A test that has seen the effect of a command in Redis can wait until Idle returns
// true before it turns a blackhole on. So the blackhole doesn't swallow the reply.
func (p *Proxy) Idle() bool { return p.owed.Load() == 0 }

// Counts returns how many commands were forwarded from clients to the server since the start or
// since ResetCounts, by name in upper case. It doesn't count released commands.
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

// note keeps the first breach of protocol. It ignores other errors, which mean that a connection
// has ended.
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
