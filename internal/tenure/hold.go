package tenure

import (
	"cmp"
	"context"
	"sync"
)

// Hold is one hold of a lock: it implements lock.Lock.
type Hold struct {
	tenure *tenure

	once     sync.Once
	unlocked chan struct{} // closed by Unlock
	last     bool          // this was the last hold
	before   error         // the state when it was unlocked
}

func newHold(t *tenure) *Hold { return &Hold{tenure: t, unlocked: make(chan struct{})} }

// carried is the key of a context's value: a *tenure.
type carried struct {
	keeper *Keeper
	name   string
}

// Carry returns a context that carries the lock, for Keeper.Again.
func (h *Hold) Carry(ctx context.Context) context.Context {
	t := h.tenure
	return context.WithValue(ctx, carried{t.keeper, t.terms.Name}, t)
}

// Name is what it is the lock of.
func (h *Hold) Name() string { return h.tenure.terms.Name }

// Token is the fencing token, or 0.
func (h *Hold) Token() int64 { return h.tenure.terms.Token }

// Lost is closed when the lock is lost.
func (h *Hold) Lost() <-chan struct{} { return h.tenure.lost }

// Lose says that the lock is lost.
func (h *Hold) Lose() { h.tenure.lose() }

// Err is nil, ErrLost, or ErrNotHeld if this hold was unlocked before the lock was lost.
func (h *Hold) Err() error {
	select {
	case <-h.unlocked:
		if h.before != nil {
			return h.before
		}
		return ErrNotHeld // whatever becomes of the other holds
	default:
		return h.tenure.err()
	}
}

// Unlock ends this hold, and gives the lock back if it is the last.
func (h *Hold) Unlock(ctx context.Context) error {
	t := h.tenure
	h.once.Do(func() {
		h.last, h.before = t.unhold()
		close(h.unlocked)
		if h.last {
			t.keeper.Go(t.release)
		}
	})
	if !h.last {
		return h.before
	}
	select {
	case <-t.released:
	case <-ctx.Done():
		select {
		case <-t.released: // both at once: the answer is better
		default:
			return cmp.Or(h.before, ctx.Err()) // that it was lost is known without the answer
		}
	}
	return cmp.Or(h.before, t.answer)
}
