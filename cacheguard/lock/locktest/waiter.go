package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// acquire is Lock or TryLock of some locker.
type acquire func(ctx context.Context, name string) (lock.Lock, error)

// waiter is a running acquisition.
type waiter struct {
	e      *env
	name   string
	cancel context.CancelFunc
	inLock bool // its context is not the case's own, but that of a lock
	began  time.Time
	// Closed when the acquisition has returned: read the fields below only then.
	over chan struct{}
	held lock.Lock
	err  error
	at   time.Time // when it returned
}

func (e *env) begin(ctx context.Context, step acquire, name string) *waiter {
	ctx, cancel := context.WithCancel(ctx)
	w := &waiter{e: e, name: name, cancel: cancel, began: time.Now(), over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.held, w.err = step(ctx, name)
		w.at = time.Now()
	}()
	return w
}

// wait starts a call of Lock.
func (e *env) wait(l lock.Locker, name string) *waiter { return e.waitIn(e.ctx, l, name) }

// waitIn is like wait, with a given context.
func (e *env) waitIn(ctx context.Context, l lock.Locker, name string) *waiter {
	w := e.begin(ctx, l.Lock, name)
	w.inLock = ctx != e.ctx
	e.waiters = append(e.waiters, w)
	return w
}

// ask acquires a lock. The acquisition has to return when its context ends. If it doesn't, ask
// fails the case.
func (e *env) ask(ctx context.Context, step acquire, name string) (lock.Lock, error) {
	e.Helper()
	w := e.asked(ctx, step, name)
	return w.held, w.err
}

// asked is like ask, but returns a waiter that has returned.
func (e *env) asked(ctx context.Context, step acquire, name string) *waiter {
	e.Helper()
	within, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	w := e.begin(within, step, name)
	w.inLock = ctx != e.ctx
	timeout := time.NewTimer(2 * e.limit)
	defer timeout.Stop()
	select {
	case <-w.over:
	case <-timeout.C:
		e.waiters = append(e.waiters, w)
		e.Fatalf("an acquisition of %q does not return, although its context ended %v ago", name,
			e.limit)
	}
	w.cancel()
	return w
}

// got waits for the lock and returns it.
func (w *waiter) got() lock.Lock {
	w.e.Helper()
	w.e.happens("a waiter has the lock", w.over)
	return w.lock()
}

// lock checks the result of an acquisition of a lock that was free, or was about to be free.
func (w *waiter) lock() lock.Lock {
	e := w.e
	e.Helper()
	switch {
	case w.inLock && errors.Is(w.err, lock.ErrLost):
		e.unlucky("an acquisition of %q under a lock's context returned: %v", w.name, w.err)
	case w.wrong():
		e.Fatalf("an acquisition of %q, which can be had, returned: %v", w.name, w.err)
	case w.err != nil:
		e.unlucky("an acquisition of %q, which can be had, returned: %v", w.name, w.err)
	case w.held == nil:
		e.Fatalf("an acquisition of %q returned neither a lock nor an error", w.name)
	}
	e.keep(w.held)
	e.isHeld(w.held)
	return w.held
}

// wrong reports whether an acquisition failed with an error that a slow server can't cause.
func (w *waiter) wrong() bool { return aboutLock(w.err) || w.err != nil && w.neverGot() }

// neverGot reports whether an acquisition took the whole time limit, so that its context ended.
func (w *waiter) neverGot() bool { return w.at.Sub(w.began) >= w.e.limit }

// first waits until one of two waiters has returned, and returns that one first.
func (e *env) first(a, b *waiter) (first, second *waiter) {
	e.Helper()
	timeout := time.NewTimer(e.limit)
	defer timeout.Stop()
	select {
	case <-a.over:
		return a, b
	case <-b.over:
		return b, a
	case <-timeout.C:
		e.Fatalf("neither of two who wait has the lock within %v", e.limit)
		return nil, nil
	}
}

// returned waits for the end of the acquisition and returns its error. A lock that it got is given
// back at the end of the case.
func (w *waiter) returned() error {
	w.e.Helper()
	w.e.happens("a Lock returns", w.over)
	return w.err
}

// waits checks that the acquisition still waits, as it must while held is held.
func (w *waiter) waits(held lock.Lock) {
	w.e.Helper()
	select {
	case <-w.over:
		w.e.isHeld(held)
		switch {
		case w.err == nil:
			w.e.Fatalf("two have the lock of %q", w.name)
		case w.wrong():
			w.e.Fatalf("Lock of %q has ended: %v", w.name, w.err)
		default:
			w.e.unlucky("Lock of %q has ended: %v", w.name, w.err)
		}
	default:
	}
}

// giveUp waits for the end of the acquisition and gives back the lock, if it has got one. It is
// called after the context has ended.
func (w *waiter) giveUp() {
	select {
	case <-w.over:
	case <-time.After(w.e.limit):
		// The case has failed already, because this Lock ignores its context.
		return
	}
	if w.err == nil {
		giveBack(w.held, w.e.limit)
	}
}
