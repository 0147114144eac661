package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

const dialTimeout = 5 * time.Second

// Link is one client's connection, together with its connection to the server. It has three
// goroutines: serve owns both connections and closes them, and each of the other two forwards one
// direction.
type Link struct {
	Client, Server net.Conn

	proxy *Proxy
	end   context.CancelFunc // tells serve to close
	done  <-chan struct{}    // closed by end
	ended chan struct{}      // closed when all goroutines of the link have ended
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

// Carry forwards both directions, and returns when the link has ended. Each of the two functions
// forwards one direction and returns when that direction has ended. The end of one direction ends
// the link only if its function calls End.
func (l *Link) Carry(requests, replies func()) {
	var pumps sync.WaitGroup
	pumps.Go(requests)
	pumps.Go(replies)
	<-l.done
	_ = l.Client.Close()
	_ = l.Server.Close()
	pumps.Wait()
}

// End makes the link end soon, with both connections.
func (l *Link) End() { l.end() }

// Pass waits while a blackhole swallows the traffic. It returns true when there is no blackhole,
// and false if the link ends first. Before each wait, it calls the given functions. If one of them
// fails, Pass returns false, as if the link had ended.
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

// Await returns true when an element comes from gate or gate is closed, and false if the link ends
// first.
func Await[T any](l *Link, gate <-chan T) bool {
	select {
	case <-gate:
		return true
	case <-l.done:
		return false
	}
}
