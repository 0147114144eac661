package lab

import (
	"context"
	"net"
	"sync"
)

// link is the address at which the replicas of a run find Redis. After a failover another server
// answers at this address.
type link struct {
	mu    sync.Mutex // guards the fields below
	addr  string     // the address of the server that answers
	conns []net.Conn // the connections to this server
}

// dial connects to the server that answers now, whatever the given address is.
func (l *link) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	for {
		addr := l.server()
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if l.keep(conn, addr) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// keep records a connection, unless another server answers by now.
func (l *link) keep(conn net.Conn, addr string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addr != addr {
		return false
	}
	l.conns = append(l.conns, conn)
	return true
}

func (l *link) server() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addr
}

// failOver makes another server answer from now on, and ends the connections to the previous
// server.
func (l *link) failOver(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = to
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}
