package zktest

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// link is one client's connection and the one to the server that belongs to it. serve owns both and
// closes them; two more goroutines forward one direction each.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn

	end   context.CancelFunc // tells serve to close
	done  <-chan struct{}    // closed by end
	ended chan struct{}      // closed when all is over
	dial  func() (net.Conn, error)

	mu     sync.Mutex       // guards doomed
	doomed map[int32]*Fault // requests whose reply is to be lost, by their numbers
}

func newLink(p *Proxy, client net.Conn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	dialer := net.Dialer{Timeout: dialTimeout}
	return &link{
		proxy: p, client: client,
		end: cancel, done: ctx.Done(), ended: make(chan struct{}),
		dial:   func() (net.Conn, error) { return dialer.DialContext(ctx, "tcp", p.target) },
		doomed: make(map[int32]*Fault),
	}
}

func (l *link) serve() {
	defer close(l.ended)
	defer l.proxy.remove(l)
	defer l.client.Close()
	defer l.end()
	if !l.pass() {
		return
	}
	var err error
	if l.server, err = l.dial(); err != nil {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { l.forward(l.client, l.server, l.request) })
	pumps.Go(func() { l.forward(l.server, l.client, l.reply) })
	<-l.done
	_ = l.client.Close()
	_ = l.server.Close()
	pumps.Wait()
}

// forward copies frames until either side ends, or look says that one doesn't pass.
func (l *link) forward(from, to net.Conn, look func(frame []byte) bool) {
	defer l.end()
	in := bufio.NewReader(from)
	for first := true; ; first = false {
		frame, err := readFrame(in)
		if err != nil || !first && !look(frame) || !l.pass() {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// request looks at a frame on its way to the server.
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

// reply looks at a frame on its way to the client.
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
		l.end()
		_ = l.client.Close() // before anybody hears that the reply is lost
	}
	close(f.struck)
	if f.then == Silence {
		_, _ = io.Copy(io.Discard, l.server)
	}
	return false
}

// pass waits for the end of a blackhole, and reports whether the link still stands.
func (l *link) pass() bool {
	for {
		lifted := l.proxy.lifted()
		if lifted == nil {
			return true
		}
		select {
		case <-lifted:
		case <-l.done:
			return false
		}
	}
}
