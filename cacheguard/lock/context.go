package lock

import (
	"context"
	"errors"
)

// Context returns a context for what is done under a lock: it ends with the cause ErrLost when the
// lock is lost, and it carries the lock, so that Lock and TryLock of the same Locker and name,
// called with it, succeed at once (reentrancy). Such a lock is one more hold of the same: it has
// the same token, and the lock is given back when all its holds are unlocked. If the lock was lost
// they return ErrLost, for what they would continue has been interrupted. After its last Unlock the
// context carries nothing.
//
// The lockers of this module are reentrant in this way. A Lock of another one is asked to carry
// itself, if it has a method Carry(context.Context) context.Context.
//
// Call cancel when done, or the context keeps a goroutine until ctx ends.
func Context(ctx context.Context, held Lock) (under context.Context, cancel context.CancelFunc) {
	under, end := context.WithCancelCause(carry(ctx, held))
	if errors.Is(held.Err(), ErrLost) {
		end(ErrLost) // now, and not a moment later: the lock may already be another's
	}
	go func() {
		select {
		case <-held.Lost():
			end(ErrLost)
		case <-under.Done():
		}
	}()
	return under, func() { end(context.Canceled) }
}

// carry is a context that carries the lock, if that can be carried.
func carry(ctx context.Context, held Lock) context.Context {
	if c, ok := held.(interface {
		Carry(context.Context) context.Context
	}); ok {
		return c.Carry(ctx)
	}
	return ctx
}
