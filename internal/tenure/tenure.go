// Package tenure is the common part of all lockers. A tenure is the time during which a lock is
// held. The package renews a lock, reports when the lock is lost, gives it back once, and lets its
// holder acquire it again.
package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MaxName is the largest number of bytes in the name of a lock.
const MaxName = 512

// The errors of package lock. That package exports them to its users.
var (
	ErrHeld    = errors.New("lock: another holder has it")
	ErrLost    = errors.New("lock: it was lost")
	ErrNotHeld = errors.New("lock: it is not held any more")
	ErrClosed  = errors.New("lock: the locker is closed")
)

// CheckName returns an error if a name is wrong.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("lock: the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("lock: the name has %d bytes, more than %d", len(name), MaxName)
	}
	return nil
}

// Endless reports whether the remaining time of another holder's lock is longer than any lease, or
// negative, which means that the lock has no end. No locker has made such a lock, so a caller must
// not wait for its end.
func Endless(left, lease time.Duration) bool {
	return left < 0 || left > time.Hour && left/1000 > lease
}

// Terms are the terms of one lock. Only Name and Release are required.
type Terms struct {
	Name  string
	Token int64

	// Until is when the lock ends unless it is renewed. The lease begins before the request that
	// acquired the lock was sent. Zero: the lock has no end, and Renew is not used.
	Until time.Time

	// Renew asks for more time and returns the new end of the lock. Like Until, this end is counted
	// from before the request. Renew is called when Every has passed since the last answer, or half
	// of the remaining time, whichever is earlier. After an error it is called again after an
	// eighth of Every. held is false if another holder or no holder has the lock. ctx ends when the
	// lock ends, and Renew must end with ctx.
	Renew func(ctx context.Context) (until time.Time, held bool, err error)
	Every time.Duration

	// Most is the longest time that the lock may be held. After this time the lock is lost to its
	// holder, and is no longer renewed. Zero: no limit.
	Most time.Duration

	// Release gives the lock back. It is called once, even if the lock was lost. It runs on its own
	// goroutine (but see Prompt) and with its own context, so it must have its own time limit. If
	// the lock was no longer held, it returns ErrLost.
	Release func(ctx context.Context) error

	// Prompt reports whether Release is likely to return soon. If so, Release runs on the goroutine
	// of Unlock, because another goroutine would cost more than the step itself. Unlock doesn't
	// watch its ctx meanwhile. Nil: Release never runs on the goroutine of Unlock.
	Prompt func(ctx context.Context) bool
}

// tenure is one held lock, with one or more holds.
type tenure struct {
	keeper *Keeper
	terms  Terms
	last   time.Time // the latest end of the lock, also with renewals; zero: no limit

	lost chan struct{} // closed when the lock is lost

	// Guards the fields below; the holder of this mutex may lock the keeper's mutex, but the holder
	// of the keeper's mutex must not lock this one.
	mu    sync.Mutex
	holds int
	state error // nil, ErrLost or ErrNotHeld
	until time.Time
	// Fires at until, if the lock has an end; with renewals it is set when the first renewal
	// begins.
	expiry *time.Timer
	// Timer of the next renewal, if there is one; it is not a goroutine for each lock, because each
	// Unlock would wake the goroutine.
	renewal *time.Timer
	over    context.CancelFunc // cancels the running renewal, or nil

	released chan struct{} // closed when Release has returned
	answer   error         // result of Release; read it after released is closed
}

// err returns the result of Lock.Err. It also checks the clock, because the timer may be late, for
// example after a pause of the whole process.
func (t *tenure) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.check()
}

// check is err for callers that hold t.mu.
func (t *tenure) check() error {
	if t.state == nil && !t.until.IsZero() && !time.Now().Before(t.until) {
		t.end(ErrLost)
	}
	return t.state
}

// lose ends the tenure as lost, if it has not ended.
func (t *tenure) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(ErrLost)
}

// end ends the tenure. The caller holds t.mu.
func (t *tenure) end(state error) {
	if t.state != nil {
		return
	}
	t.state = state
	if t.expiry != nil {
		t.expiry.Stop()
	}
	if state == ErrLost {
		close(t.lost)
	}
	if t.renewal != nil {
		t.renewal.Stop()
	}
	if t.over != nil {
		t.over()
	}
	t.keeper.forget(t)
}

// extend records the new end of the lock, which has not ended yet. The caller holds t.mu.
func (t *tenure) extend(until time.Time) {
	t.until = t.bounded(until)
	t.expireInTime()
}

// bounded returns until, which is the end of the lock in the system, or last if last is earlier.
// The zero Time means for ever.
func (t *tenure) bounded(until time.Time) time.Time {
	if !t.last.IsZero() && (until.IsZero() || until.After(t.last)) {
		return t.last
	}
	return until
}

// expireInTime sets the timer for the end of the lock. The caller holds t.mu.
func (t *tenure) expireInTime() {
	switch {
	case t.until.IsZero():
	case t.expiry == nil:
		// The lock may have been extended since the timer fired.
		t.expiry = time.AfterFunc(time.Until(t.until), func() { _ = t.err() })
	default:
		t.expiry.Reset(time.Until(t.until))
	}
}

// again adds a hold, or returns an error if that is not possible.
func (t *tenure) again() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.check()
	switch {
	case t.holds == 0: // even if the lock was lost before
		return ErrNotHeld
	case err != nil:
		return err
	}
	t.holds++
	return nil
}

// unhold ends one hold. With the last hold it ends the tenure. It reports whether this was the last
// hold, and returns the state before the call.
func (t *tenure) unhold() (last bool, before error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.check()
	t.holds--
	if t.holds > 0 {
		return false, before
	}
	t.end(ErrNotHeld)
	return true, before
}

// renew renews the lock once, and schedules the next renewal.
func (t *tenure) renew() {
	ctx, over := t.beginRenewal()
	if over == nil {
		return
	}
	defer t.keeper.done()
	defer over()
	until, held, err := t.terms.Renew(ctx)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = nil
	switch {
	case t.check() != nil:
	case err != nil:
		// If no renewal succeeds in time, the lock ends by itself.
		t.renewal.Reset(t.terms.Every / 8)
	case !held:
		t.end(ErrLost)
	default:
		t.extend(until)
		t.renewal.Reset(t.pause())
	}
}

// beginRenewal returns a context that ends when the tenure is over, and its cancel function. It
// returns nil if the tenure is over.
func (t *tenure) beginRenewal() (context.Context, context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.check() != nil {
		return nil, nil
	}
	if t.expiry == nil {
		t.expireInTime()
	}
	// occupy is called while t.mu is held. So Close, which makes this tenure lost, either waits for
	// the renewal or prevents it.
	t.keeper.occupy()
	ctx, over := context.WithDeadline(context.Background(), t.until)
	t.over = over
	return ctx, over
}

// pause returns the wait before the next renewal. It allows one renewal to fail, unless the last
// answer took too long. The caller holds t.mu.
func (t *tenure) pause() time.Duration {
	if t.until.IsZero() {
		return t.terms.Every
	}
	return max(min(t.terms.Every, time.Until(t.until)/2), time.Millisecond)
}

// release gives the lock back.
func (t *tenure) release() {
	defer close(t.released)
	t.answer = errors.New("lock: its release did not return") // replaced when Release returns
	t.answer = t.terms.Release(context.Background())
}
