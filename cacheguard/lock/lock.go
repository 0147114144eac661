package lock

import "context"

// Locker hands out locks by name: at any time at most one holder in the fleet has the lock of a name, as far as the
// system behind it can keep that up (see the package documentation). A name is any bytes, from 1 to MaxName of them.
// It is safe for concurrent use.
type Locker interface {
	// Lock waits until it has the lock. It returns an error that wraps ctx's when ctx ends first, ErrClosed when the
	// locker is closed, and that of the system when it can't be used; then nothing is held, and what may have been
	// acquired without being heard of is given back in the background. ctx bounds the acquisition only: the lock is
	// held until Unlock, whatever becomes of ctx.
	Lock(ctx context.Context, name string) (Lock, error)

	// TryLock is Lock without the wait for another holder: then it returns an error that wraps ErrHeld.
	TryLock(ctx context.Context, name string) (Lock, error)
}

// Lock is a lock that was acquired. It is safe for concurrent use.
type Lock interface {
	// Name is what it is the lock of.
	Name() string

	// Token is the fencing token: larger than that of every holder of this name before. Hand it to what the lock
	// protects, and have that refuse a token smaller than the largest it has seen: only so is a holder harmless that
	// was stopped, lost the lock and goes on without having noticed. It is 0 where the system can't give one.
	Token() int64

	// Lost is closed when the lock may no longer be held: it could not be renewed in time, the system says that it is
	// gone, it was held for longer than it may be, or the locker was closed. It is not closed by Unlock.
	Lost() <-chan struct{}

	// Err is nil while the lock is held, ErrLost when it was lost, and ErrNotHeld after Unlock. It looks at the clock,
	// so it can know before Lost is closed.
	Err() error

	// Unlock gives the lock back. It returns nil when it was held until now, and ErrLost when it had been lost: then
	// another may have held it meanwhile. ctx bounds how long Unlock waits for the answer, not the attempt, so a
	// deferred Unlock works with a context that has ended; then it returns nil or an error that wraps ctx's. An error of
	// the system means that the lock ends by itself, one lease later at most. Another Unlock waits for the same answer.
	Unlock(ctx context.Context) error
}
