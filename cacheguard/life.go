package cacheguard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// closeGrace is how long Close waits for loads that were told to stop. Nearly all stop at once; one that ignores its
// context can't be stopped by anybody.
const closeGrace = 250 * time.Millisecond

// life counts what runs, and ends it.
type life struct {
	over    atomic.Bool     // newcomers get ErrClosed
	closing context.Context // ends at Close; it bounds no call, it is what running work is told by
	close   context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	count  int           // our goroutines
	idle   chan struct{} // closed when count falls to zero; nil while nobody asks

	loads sync.WaitGroup // goroutines that run the user's loads
}

func (l *life) init() { l.closing, l.close = context.WithCancel(context.Background()) }

// begin counts one more goroutine, or reports that it may not begin.
func (l *life) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.count++
	return true
}

func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.count == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// quiet returns a channel that is closed when none of our goroutines runs.
func (l *life) quiet() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		ch := make(chan struct{})
		close(ch)
		return ch
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// enter checks what every call checks first.
func (c *Cache[V]) enter(ctx context.Context) error {
	if !c.changes(ctx) {
		return ErrClosed // but Shutdown lets running loads finish, and what they ask for is part of them
	}
	return ctx.Err()
}

// changes reports whether this call may still change something.
func (c *Cache[V]) changes(ctx context.Context) bool {
	return !c.life.over.Load() || (c.life.closing.Err() == nil && c.insideAny(ctx))
}

// sleep pauses, and reports false if the cache is closed meanwhile.
func (l *life) sleep(d time.Duration) bool { return sleep(l.closing, d) }

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Shutdown turns new calls away with ErrClosed, lets running loads finish and store until ctx ends, and then closes
// the cache. It returns ctx's error if there was still something to wait for.
func (c *Cache[V]) Shutdown(ctx context.Context) error {
	c.life.over.Store(true)
	var err error
	select {
	case <-c.life.quiet():
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = c.Close()
	return err
}

// Close cancels running loads, releases their leases, gives everybody who waits ErrClosed, and returns when that is
// done. It doesn't wait for a load that ignores its context; that is logged. A second Close does nothing. The store
// stays open. The error is always nil.
func (c *Cache[V]) Close() error {
	c.life.over.Store(true)
	c.life.mu.Lock()
	first := !c.life.closed
	c.life.closed = true
	c.life.mu.Unlock()
	if !first {
		return nil
	}
	c.life.close()
	<-c.life.quiet()
	c.stopListening()
	c.tier.values.Close()
	c.detachObserver()

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.life.loads.Wait()
	}()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		c.opts.Logger.Warn("cacheguard: closed while a load that ignores its context still runs", "cache", c.opts.Name)
	}
	return nil
}
