package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// patience is the time limit for events that must happen.
var patience = 20 * time.Second

// env is the environment of a case: three lockers, and names that nobody else uses.
type env struct {
	TB
	fleet   Fleet
	rule    string
	ctx     context.Context // ends with the case
	a, b, c lock.Locker
	limit   time.Duration // for events that must happen
	// The time limit for events that happen at once unless the machine is slow.
	prompt  time.Duration
	waiters []*waiter
	ended   []func()

	shutDown bool // Lockers[0] is closed
}

// badLuck ends an attempt, as a panic: something allowed has happened, but the case proves nothing
// after it.
type badLuck struct{ reason string }

func newEnv(t TB, f Fleet, rule string) *env {
	e := &env{
		TB: t, fleet: f, rule: rule,
		a: f.Lockers[0], b: f.Lockers[1], c: f.Lockers[2],
		limit:  patience + 4*f.Lease,
		prompt: f.Lease/2 + 2*f.Poll,
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.ctx = ctx
	e.atEnd(cancel)
	return e
}

// Errorf reports a failure, with the rule of the case.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.TB.Errorf(format+"\n\tprotects: "+e.rule, args...)
}

// Fatalf reports a failure, with the rule of the case, and ends the case.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.TB.Fatalf(format+"\n\tprotects: "+e.rule, args...)
}

// unlucky makes the case begin again, unless it has closed a locker that can't be opened again.
// Call it only on the case's own goroutine.
func (e *env) unlucky(format string, args ...any) {
	e.Helper()
	if e.shutDown && e.fleet.Longer == nil {
		e.Fatalf("after Close: "+format, args...)
	}
	panic(badLuck{fmt.Sprintf(format, args...)})
}

// aboutLock reports whether an error says something about a lock or its locker, and not about the
// system.
func aboutLock(err error) bool {
	for _, about := range []error{lock.ErrHeld, lock.ErrNotHeld, lock.ErrLost, lock.ErrClosed} {
		if errors.Is(err, about) {
			return true
		}
	}
	return false
}

// unexpected reports an error, or no error, that an operation must not return. If a slow server can
// be the reason, the case has bad luck instead: the operation got no answer, for longer than a
// fourth of a lease.
func (e *env) unexpected(took time.Duration, err error, format string, args ...any) {
	e.Helper()
	if e.unanswered(took, err) {
		e.unlucky(format, args...)
	}
	e.Errorf(format, args...)
}

// unanswered reports whether an operation may have failed because the system didn't answer in time.
func (e *env) unanswered(took time.Duration, err error) bool {
	return err != nil && !aboutLock(err) && took > e.fleet.Lease/4
}

// luckily runs a part of a case, and repeats only this part if it has bad luck.
func (e *env) luckily(part func()) {
	e.Helper()
	for n := 1; ; n++ {
		again := unlucky(part)
		switch {
		case again == nil:
			return
		case n == attempts:
			panic(*again)
		default:
			e.Logf("a part of the case begins again: %s", again.reason)
			e.pass(recovery(n, e.fleet))
		}
	}
}

// unlucky runs do and returns its bad luck, or nil.
func unlucky(do func()) (luck *badLuck) {
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(badLuck)
			if !ok {
				panic(r)
			}
			luck = &bad
		}
	}()
	do()
	return nil
}

// atEnd registers a function to be called when the case is over. The functions run in reverse
// order.
func (e *env) atEnd(do func()) { e.ended = append(e.ended, do) }

func (e *env) close() {
	for _, w := range e.waiters {
		w.cancel()
	}
	for i := len(e.ended) - 1; i >= 0; i-- {
		e.ended[i]()
	}
	for _, w := range e.waiters {
		w.giveUp()
	}
}

// name returns a random name.
func (e *env) name() string { return "locktest-" + rand.Text() }

// bounded returns a context with the time limit of events that must happen.
func (e *env) bounded() context.Context {
	ctx, cancel := context.WithTimeout(e.ctx, e.limit)
	e.atEnd(cancel)
	return ctx
}

// pass waits for d. It makes no timer for 0, because several timers that are due at once trigger
// the race detector in a bubble (Go issue 78156).
func (e *env) pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// happens waits for an event that must happen.
func (e *env) happens(what string, c <-chan struct{}) {
	e.Helper()
	e.happensWithin(e.limit, what, c)
}

func (e *env) happensWithin(limit time.Duration, what string, c <-chan struct{}) {
	e.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-c:
	case <-timeout.C:
		e.Fatalf("did not happen within %v: %s", limit, what)
	}
}

// soon makes the case begin again if an event took too long. An event may take too long, but not
// every time.
func (e *env) soon(what string, took, most time.Duration) {
	if took > most {
		e.unlucky("%s: after %v; want it within %v", what, took, most)
	}
}

// keep unlocks a lock when the case is over, in case it is still held.
func (e *env) keep(held lock.Lock) lock.Lock {
	e.atEnd(func() { giveBack(held, e.limit) })
	return held
}

// giveBack unlocks a lock that the case no longer needs, and ignores errors.
func giveBack(held lock.Lock, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = held.Unlock(ctx)
}

// lock waits for a lock.
func (e *env) lock(l lock.Locker, name string) lock.Lock {
	e.Helper()
	return e.lockIn(e.ctx, l, name)
}

// lockIn is like lock, with a given context.
func (e *env) lockIn(ctx context.Context, l lock.Locker, name string) lock.Lock {
	e.Helper()
	return e.asked(ctx, l.Lock, name).lock()
}

// try acquires the lock of a name that is free.
func (e *env) try(l lock.Locker, name string) lock.Lock {
	e.Helper()
	return e.tryIn(e.ctx, l, name)
}

// tryIn is like try, with a given context.
func (e *env) tryIn(ctx context.Context, l lock.Locker, name string) lock.Lock {
	e.Helper()
	return e.asked(ctx, l.TryLock, name).lock()
}

// isHeld checks that locks are held. A lock that was lost is bad luck.
func (e *env) isHeld(locks ...lock.Lock) {
	e.Helper()
	for _, held := range locks {
		switch err := held.Err(); {
		case errors.Is(err, lock.ErrLost):
			e.unlucky("%q was lost", held.Name())
		case err != nil:
			e.Fatalf("Err of %q, which is held: %v", held.Name(), err)
		}
	}
}

// isLost checks a lock that is known to be lost.
func (e *env) isLost(held lock.Lock) {
	e.Helper()
	e.happens("Lost is closed", held.Lost())
	if err := held.Err(); !errors.Is(err, lock.ErrLost) {
		e.Errorf("Err of a lock that was lost: %v; want ErrLost", err)
	}
}

// unlocked returns the result of Unlock. late reports whether Unlock returned only when its context
// ended. If Unlock doesn't return even then, the case fails.
func (e *env) unlocked(ctx context.Context, held lock.Lock) (err error, late bool) {
	e.Helper()
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	c := e.crew()
	began := time.Now()
	c.do(func() { err = held.Unlock(ctx) })
	e.happensWithin(2*e.limit, "Unlock returns", c.over())
	return err, time.Since(began) >= e.limit
}

// unlock gives back a lock that is held.
func (e *env) unlock(held lock.Lock) {
	e.Helper()
	switch err, late := e.unlocked(e.ctx, held); {
	case errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrHeld), err != nil && late:
		e.Fatalf("Unlock of %q, which is held: %v", held.Name(), err)
	case err != nil:
		e.unlucky("Unlock of %q, which is held: %v", held.Name(), err)
	}
}

// saysLost unlocks a lock that was lost, and expects ErrLost.
func (e *env) saysLost(held lock.Lock) {
	e.Helper()
	const wrong = "Unlock of %q, which was lost: %v; want ErrLost"
	began := time.Now()
	switch err, late := e.unlocked(e.ctx, held); {
	case errors.Is(err, lock.ErrLost):
	case late:
		e.Errorf(wrong, held.Name(), err)
	default:
		e.unexpected(time.Since(began), err, wrong, held.Name(), err)
	}
}

// refused checks that a locker can't acquire a name whose lock is held.
func (e *env) refused(l lock.Locker, held lock.Lock) {
	e.Helper()
	e.refusedIn(e.ctx, l, held)
}

// refusedIn is like refused, with a given context.
func (e *env) refusedIn(ctx context.Context, l lock.Locker, held lock.Lock) {
	e.Helper()
	w := e.asked(ctx, l.TryLock, held.Name())
	if w.err == nil {
		e.keep(w.held)
		if err := held.Err(); errors.Is(err, lock.ErrLost) {
			e.unlucky("%q was lost", held.Name())
		}
		e.Fatalf("two have the lock of %q", held.Name())
	}
	e.isHeld(held)
	switch {
	case errors.Is(w.err, lock.ErrHeld):
	case w.neverGot():
		e.Fatalf("TryLock of %q, which is held, waited: %v", held.Name(), w.err)
	default:
		e.unlucky("TryLock of %q, which is held: %v; want ErrHeld", held.Name(), w.err)
	}
}
