// Package lifetime counts the goroutines of an object that can be closed, so that no goroutine
// outlives the object.
package lifetime

import (
	"context"
	"sync"
	"time"
)

// Life counts goroutines until it is closed. It is made by New, and safe for concurrent use.
type Life struct {
	// Closing ends when Close is called. It is not for the contexts of calls; running work uses it
	// to notice the end.
	Closing context.Context
	end     context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	count  int           // number of goroutines
	idle   chan struct{} // closed when count becomes zero; nil while no goroutine waits
}

// New returns an open Life.
func New() *Life {
	l := &Life{}
	l.Closing, l.end = context.WithCancel(context.Background())
	return l
}

// Begin counts one more goroutine, which must call End when it ends. It returns false if the Life
// is closed and the goroutine may not begin.
func (l *Life) Begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.count++
	return true
}

// End is called when a goroutine ends.
func (l *Life) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.count == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// Go runs do on a counted goroutine. It returns false if the Life is closed.
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

// Sleep pauses. It returns false if the Life is closed meanwhile.
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

// Close allows no more goroutines, tells the running goroutines through Closing, and returns when
// all of them have ended. If Close was called before, it returns false at once.
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
