package lab

import (
	"context"
	"net"
	"sync"
)

// link is where the replicas of a run find Redis. A failover gives them another server at the same
// name.
type link struct {
	mu    sync.Mutex // guards what follows
	addr  string     // of the server that answers
	conns []net.Conn // to it
}

// dial connects to the server that answers now, whatever address it is asked for.
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

// keep notes a connection, unless another server answers by now.
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

// failOver has another server answer from now on, and ends the connections to the one before.
func (l *link) failOver(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = to
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}
