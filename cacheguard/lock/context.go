package lock

import (
	"context"
	"errors"
)

// Context returns a context for the work that is done under a lock. The context ends with the cause
// [ErrLost] when the lock is lost. It also carries the lock: if Lock or TryLock of the same Locker
// and name is called with this context, the call succeeds at once (reentrancy). The call returns
// one more hold of the same lock, with the same token. The lock is given back when all its holds
// are unlocked. If the lock was lost, Lock and TryLock with this context return ErrLost, because
// the work that calls them has lost its lock. After the last Unlock the context no longer carries
// the lock.
//
// The lockers of this module are reentrant in this way. To make the locks of another Locker
// reentrant, give their type a method Carry(context.Context) context.Context: Context calls it if
// it exists.
//
// Call cancel when the work is done. Otherwise the context keeps a goroutine until ctx ends or the
// lock is lost.
func Context(ctx context.Context, held Lock) (under context.Context, cancel context.CancelFunc) {
	under, end := context.WithCancelCause(carry(ctx, held))
	if errors.Is(held.Err(), ErrLost) {
		end(ErrLost) // at once, because another holder may already have the lock
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

// carry returns a context that carries the lock if the lock supports that, otherwise ctx.
func carry(ctx context.Context, held Lock) context.Context {
	if c, ok := held.(interface {
		Carry(context.Context) context.Context
	}); ok {
		return c.Carry(ctx)
	}
	return ctx
}
