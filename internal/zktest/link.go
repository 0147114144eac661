package zktest

import (
	"bufio"
	"io"
	"net"
	"sync"

	"github.com/cacheguard/cacheguard/internal/faultproxy"
)

// link is one client's connection, together with its connection to the server.
type link struct {
	*faultproxy.Link
	proxy *Proxy

	mu sync.Mutex // guards doomed
	// The faults of requests whose replies must be lost, by the requests' numbers.
	doomed map[int32]*Fault
}

// carry serves a connection until it ends.
func (p *Proxy) carry(of *faultproxy.Link) {
	l := &link{Link: of, proxy: p, doomed: make(map[int32]*Fault)}
	l.Carry(
		func() { l.forward(l.Client, l.Server, l.request) },
		func() { l.forward(l.Server, l.Client, l.reply) },
	)
}

// forward copies frames until either side ends, or until look returns false for a frame.
func (l *link) forward(from, to net.Conn, look func(frame []byte) bool) {
	defer l.End()
	in := bufio.NewReader(from)
	for first := true; ; first = false {
		frame, err := readFrame(in)
		if err != nil || !first && !look(frame) || !l.Pass() {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// request examines a frame on its way to the server, and reports whether it may pass.
func (l *link) request(frame []byte) bool {
	if number(frame) < 0 {
		return true // a ping
	}
	if f := l.proxy.note(request(frame)); f != nil {
		l.mu.Lock()
		l.doomed[number(frame)] = f
		l.mu.Unlock()
	}
	return true
}

// reply examines a frame on its way to the client, and reports whether it may pass.
func (l *link) reply(frame []byte) bool {
	if number(frame) == watchEvent {
		l.proxy.noteEvent()
	}
	l.mu.Lock()
	f := l.doomed[number(frame)]
	l.mu.Unlock()
	if f == nil {
		return true
	}
	if f.then == Hangup {
		l.End()
		_ = l.Client.Close() // before Struck is closed
	}
	close(f.struck)
	if f.then == Silence {
		_, _ = io.Copy(io.Discard, l.Server)
	}
	return false
}
