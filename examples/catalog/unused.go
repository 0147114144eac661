package main

import (
	"net"
	"net/http"
	"sync"
)

// unused contains a server's connections on which no data was sent yet. Browsers open some
// connections in advance. When http.Server is shut down, it waits five seconds for the first
// request on them.
type unused struct {
	mu     sync.Mutex // guards the fields below
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

// close closes these connections, and all that are still to come.
func (u *unused) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for conn := range u.conns {
		_ = conn.Close()
	}
}
