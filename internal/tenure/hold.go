package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Hold is one hold of a lock. It implements lock.Lock.
type Hold struct {
	tenure *tenure

	once     sync.Once
	unlocked chan struct{} // closed by Unlock
	last     bool          // this was the last hold of the lock
	before   error         // state of the tenure before the unlock
}

func newHold(t *tenure) *Hold { return &Hold{tenure: t, unlocked: make(chan struct{})} }

// carried is the key under which a context has the *tenure of a lock.
type carried struct {
	keeper *Keeper
	name   string
}

// Carry returns a context that carries the lock, for Keeper.Again.
func (h *Hold) Carry(ctx context.Context) context.Context {
	t := h.tenure
	return context.WithValue(ctx, carried{t.keeper, t.terms.Name}, t)
}

// Name returns the name of the lock.
func (h *Hold) Name() string { return h.tenure.terms.Name }

// Token returns the fencing token, or 0.
func (h *Hold) Token() int64 { return h.tenure.terms.Token }

// Lost returns a channel that is closed when the lock is lost.
func (h *Hold) Lost() <-chan struct{} { return h.tenure.lost }

// Until returns when the lock ends if nothing renews it, as of the last time that the lock was
// known to be held. The zero Time means that the lock has no end.
func (h *Hold) Until() time.Time {
	h.tenure.mu.Lock()
	defer h.tenure.mu.Unlock()
	return h.tenure.until
}

// Lose ends the lock as lost.
func (h *Hold) Lose() { h.tenure.lose() }

// Err returns nil, ErrLost, or ErrNotHeld if this hold was unlocked before the lock was lost.
func (h *Hold) Err() error {
	select {
	case <-h.unlocked:
		if h.before != nil {
			return h.before
		}
		return ErrNotHeld // even if the lock has other holds
	default:
		return h.tenure.err()
	}
}

// Unlock ends this hold. If this is the last hold, Unlock gives the lock back.
func (h *Hold) Unlock(ctx context.Context) error {
	t := h.tenure
	mine := false
	h.once.Do(func() {
		h.last, h.before = t.unhold()
		close(h.unlocked)
		mine = h.last
	})
	switch {
	case !h.last:
		return h.before
	case mine && t.terms.Prompt != nil && t.terms.Prompt(ctx):
		t.keeper.Do(t.release)
	case mine:
		t.keeper.Go(t.release)
	}
	select {
	case <-t.released:
	case <-ctx.Done():
		select {
		case <-t.released: // if both are ready, the answer is better
		default:
			// If the lock was lost before, the error is known without the answer.
			return cmp.Or(h.before, ctx.Err())
		}
	}
	// The answer came too late for this context.
	if err := ctx.Err(); err != nil && t.answer != nil && !errors.Is(t.answer, ErrLost) {
		return cmp.Or(h.before, fmt.Errorf("%w: %w", err, t.answer))
	}
	return cmp.Or(h.before, t.answer)
}
