package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// Link is one client's connection and the one to the server that belongs to it. Three goroutines:
// serve owns both connections and closes them, the other two forward one direction each.
type Link struct {
	Client, Server net.Conn

	proxy *Proxy
	end   context.CancelFunc // tells serve to close
	done  <-chan struct{}    // closed by end
	ended chan struct{}      // closed when all is over
}

// link begins to serve a client.
func (p *Proxy) link(client net.Conn) {
	ctx, end := context.WithCancel(context.Background())
	l := &Link{Client: client, proxy: p, end: end, done: ctx.Done(), ended: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	p.work.Go(func() { l.serve(ctx) })
}

func (p *Proxy) remove(l *Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (l *Link) serve(ctx context.Context) {
	defer close(l.ended)
	defer l.proxy.remove(l)
	defer l.Client.Close()
	defer l.end()
	if !l.Pass() {
		return
	}
	var err error
	dialer := net.Dialer{Timeout: dialTimeout}
	if l.Server, err = dialer.DialContext(ctx, "tcp", l.proxy.target); err == nil {
		l.proxy.carry(l)
	}
}

// Carry forwards both directions, each by a function that returns when it is over, and returns when
// the link has ended. That one direction is over ends the link only if its function calls End.
func (l *Link) Carry(requests, replies func()) {
	var pumps sync.WaitGroup
	pumps.Go(requests)
	pumps.Go(replies)
	<-l.done
	_ = l.Client.Close()
	_ = l.Server.Close()
	pumps.Wait()
}

// End has the link end soon, with both connections.
func (l *Link) End() { l.end() }

// Pass returns true when no blackhole swallows the traffic, after a wait if need be, and false if
// the link ends first. If what is to be done before a wait fails, the link counts as ended.
func (l *Link) Pass(before ...func() error) bool {
	for {
		lifted := l.proxy.lifted()
		if lifted == nil {
			return true
		}
		for _, do := range before {
			if do() != nil {
				return false
			}
		}
		if !Await(l, lifted) {
			return false
		}
	}
}

// Await returns true when something comes from gate or gate is closed, and false if the link ends
// first.
func Await[T any](l *Link, gate <-chan T) bool {
	select {
	case <-gate:
		return true
	case <-l.done:
		return false
	}
}
