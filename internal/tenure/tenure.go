// Package tenure is what lockers have in common: the time in which a lock is held. It renews a
// lock, says when it is lost, gives it back once, and lets its holder have it again.
package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MaxName is how many bytes the name of a lock has at most.
const MaxName = 512

// The errors of package lock, which gives them to its users.
var (
	ErrHeld    = errors.New("lock: another holder has it")
	ErrLost    = errors.New("lock: it was lost")
	ErrNotHeld = errors.New("lock: it is not held any more")
	ErrClosed  = errors.New("lock: the locker is closed")
)

// CheckName returns an error that says what is wrong with a name.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("lock: the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("lock: the name has %d bytes, more than %d", len(name), MaxName)
	}
	return nil
}

// Endless reports whether what is left of another's lock is more than a lease ever is, or negative,
// which stands for no end: then no locker has left it like that, and to wait for it is no use.
func Endless(left, lease time.Duration) bool {
	return left < 0 || left > time.Hour && left/1000 > lease
}

// Terms are those of one lock. Only Name and Release are required.
type Terms struct {
	Name  string
	Token int64

	// Until is when the lock ends unless it is renewed, counted from before the request that
	// acquired it was sent. Zero: it has no end of its own, and Renew is not used.
	Until time.Time

	// Renew asks for more time and says until when, counted as Until. It is called every Every,
	// sooner where an answer has taken so long that the lock would end before, and again sooner
	// after an error; held is false if the system says that the lock is another's or nobody's. It
	// ends with ctx, which ends when the lock does.
	Renew func(ctx context.Context) (until time.Time, held bool, err error)
	Every time.Duration

	// Most is how long the lock may be held: after that it is lost to its holder, and no longer
	// renewed. Zero: no cap.
	Most time.Duration

	// Release gives the lock back. It is called once, whatever has become of the lock, on a
	// goroutine and with a context of its own, and returns within a time of its own. It returns
	// ErrLost if the system says that the lock was not held any more.
	Release func(ctx context.Context) error

	// Prompt reports whether Release is likely to return soon, so that it may run on the goroutine
	// of Unlock, which then doesn't look at its ctx meanwhile: another goroutine costs more than
	// the step itself. Nil: it never is.
	Prompt func(ctx context.Context) bool
}

// tenure is one lock, held by one holder or more of its handles.
type tenure struct {
	keeper *Keeper
	terms  Terms
	last   time.Time // it ends then, renewed or not; zero: there is no such time

	lost chan struct{} // closed when it is lost

	mu      sync.Mutex // guards what follows; the keeper's is taken under it, never the other way round
	holds   int
	state   error // nil, ErrLost or ErrNotHeld
	until   time.Time
	expiry  *time.Timer        // at until, if there is one; from the first renewal on, where there are renewals
	renewal *time.Timer        // at the next one, if there is one: a goroutine for each lock would be woken by each Unlock
	over    context.CancelFunc // of the renewal under way, or nil

	released chan struct{} // closed when Release has returned
	answer   error         // of Release; read it after released
}

// err is what Lock.Err says. The clock is asked too: the timer may be late, as after a pause of the
// whole process.
func (t *tenure) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.check()
}

// check is err with t.mu held.
func (t *tenure) check() error {
	if t.state == nil && !t.until.IsZero() && !time.Now().Before(t.until) {
		t.end(ErrLost)
	}
	return t.state
}

// lose ends the tenure, if it has not ended.
func (t *tenure) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(ErrLost)
}

// end is called with t.mu held.
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

// extend notes that the lock, which has not ended, is held until then. It is called with t.mu held.
func (t *tenure) extend(until time.Time) {
	t.until = t.bounded(until)
	t.expireInTime()
}

// bounded is the end of the lock if it lasts in the system until then, for which zero is for ever.
func (t *tenure) bounded(until time.Time) time.Time {
	if !t.last.IsZero() && (until.IsZero() || until.After(t.last)) {
		return t.last
	}
	return until
}

// expireInTime is called with t.mu held.
func (t *tenure) expireInTime() {
	switch {
	case t.until.IsZero():
	case t.expiry == nil:
		t.expiry = time.AfterFunc(time.Until(t.until), func() { _ = t.err() }) // it may have been extended while this began
	default:
		t.expiry.Reset(time.Until(t.until))
	}
}

// again adds a hold, or says why there can be none.
func (t *tenure) again() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.check()
	switch {
	case t.holds == 0: // whatever had become of it
		return ErrNotHeld
	case err != nil:
		return err
	}
	t.holds++
	return nil
}

// unhold ends one hold, and with the last one the tenure. It reports whether that was the last one,
// and what the state was before.
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

// renew renews the lock once, and sees to the next time.
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
		t.renewal.Reset(t.terms.Every / 8) // the lock ends by itself if this doesn't succeed in time
	case !held:
		t.end(ErrLost)
	default:
		t.extend(until)
		t.renewal.Reset(t.pause())
	}
}

// beginRenewal returns a context that ends when the tenure is over, and what ends it sooner;
// nothing if it is over.
func (t *tenure) beginRenewal() (context.Context, context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.check() != nil {
		return nil, nil
	}
	if t.expiry == nil {
		t.expireInTime()
	}
	t.keeper.occupy() // under t.mu: so Close, which loses this tenure, either waits for the renewal or prevents it
	ctx, over := context.WithDeadline(context.Background(), t.until)
	t.over = over
	return ctx, over
}

// pause is how long to wait before a renewal: one can be missed, if the last answer has not taken
// too long. It is called with t.mu held.
func (t *tenure) pause() time.Duration {
	if t.until.IsZero() {
		return t.terms.Every
	}
	return max(min(t.terms.Every, time.Until(t.until)/2), time.Millisecond)
}

// release gives the lock back.
func (t *tenure) release() {
	defer close(t.released)
	t.answer = errors.New("lock: its release did not return") // unless it does
	t.answer = t.terms.Release(context.Background())
}
