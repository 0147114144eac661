package main

import (
	"net"
	"net/http"
	"sync"
)

// unused are a server's connections on which nothing was sent yet. Browsers open some in advance,
// and http.Server waits for their first request for five seconds when it is shut down.
type unused struct {
	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	closed bool
}

// note is the server's ConnState.
func (u *unused) note(conn net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, conn)
	case u.closed:
		_ = conn.Close()
	default:
		u.conns[conn] = true
	}
}

// close closes them, and those that are still to come.
func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for conn := range u.conns {
		_ = conn.Close()
	}
}
