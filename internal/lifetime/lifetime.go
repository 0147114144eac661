// Package lifetime counts the goroutines of something that can be closed, so that none outlives it.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Life counts goroutines until it is closed. It is made by New, and safe for concurrent use.
type Life struct {
	// Closing ends at Close. It bounds no call, it is what running work is told by.
	Closing context.Context
	end     context.CancelFunc

	mu     sync.Mutex // guards what follows
	closed bool
	count  int           // goroutines
	idle   chan struct{} // closed when count falls to zero; nil while nobody asks
}

// New returns a Life that is not closed.
func New() *Life {
	l := &Life{}
	l.Closing, l.end = context.WithCancel(context.Background())
	return l
}

// Begin counts one more goroutine, for which End is called when it is over, or reports that it may
// not begin.
func (l *Life) Begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.count++
	return true
}

// End says that a goroutine is over.
func (l *Life) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.count == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// Go runs do on a goroutine that counts, or reports that it may not begin.
func (l *Life) Go(do func()) bool {
	if !l.Begin() {
		return false
	}
	go func() {
		defer l.End()
		do()
	}()
	return true
}

// Quiet returns a channel that is closed when no goroutine runs.
func (l *Life) Quiet() <-chan struct{} {
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

// Sleep pauses, and reports false if the Life is closed meanwhile.
func (l *Life) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.Closing.Done():
		return false
	}
}

// Close lets no more begin, tells those that run, and returns when none does any more. It reports
// false at once if it was called before.
func (l *Life) Close() (first bool) {
	l.mu.Lock()
	first = !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		l.end()
		<-l.Quiet()
	}
	return first
}
