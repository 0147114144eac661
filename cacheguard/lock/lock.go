package lock

import (
	"context"
	"time"
)

// Locker hands out locks by name: at any time at most one holder in the fleet has the lock of a
// name, as far as the system behind it can keep that up (see the package documentation). A name is
// any bytes, from 1 to MaxName of them. It is safe for concurrent use.
type Locker interface {
	// Lock waits until it has the lock. It returns an error that wraps ctx's when ctx ends first,
	// ErrClosed when the locker is closed, and that of the system when it can't be used; then
	// nothing is held, and what may have been acquired without being heard of is given back in the
	// background. ctx bounds the acquisition only: the lock is held until Unlock, whatever becomes
	// of ctx.
	Lock(ctx context.Context, name string) (Lock, error)

	// TryLock is Lock without the wait for another holder: then it returns an error that wraps
	// ErrHeld.
	TryLock(ctx context.Context, name string) (Lock, error)
}

// Continuer is a Locker whose locks can be handed over to another process: one that has the fencing
// token of a lock continues it. redislock and sqllock are.
type Continuer interface {
	Locker

	// Continue takes over the lock of a name from the holder whose fencing token this is, for a job
	// that goes on in another process. The lock is held without a gap, by the caller from now on,
	// with a larger token; so what it protects can refuse whatever the first holder still sends.
	// That one's Lost is closed at its next renewal, a third of a lease later at the latest, and
	// its Unlock returns ErrLost: it need not do anything. To release a lock in the name of a
	// process that has ended, continue it and unlock it. (If that process lives, another one can
	// have the lock before it has heard of this.)
	//
	// Continue doesn't wait. It returns an error that wraps ErrLost when that holder has the lock
	// no more, and otherwise the errors of TryLock; ctx is as for TryLock. After an error other
	// than ErrLost the holder may have lost the lock all the same. Then nobody has it until a lease
	// is over.
	Continue(ctx context.Context, name string, token int64) (Lock, error)
}

// Seizer is a Locker whose locks can be taken by force. All lockers of this module are.
type Seizer interface {
	Locker

	// SeizeUnsafely takes the lock of a name, whoever holds it. It is for operators, who know that
	// the holder hangs and can't be ended. It breaks the promise of a Locker: until its next
	// renewal, a third of a lease later at the latest, the holder believes that it still has the
	// lock, and both do what only one may do. A fencing token that is checked still tells them
	// apart. Those who wait go on waiting. The errors are those of TryLock without ErrHeld, and
	// after one the holder may have lost the lock all the same, as with Continue; ctx is as for
	// Lock.
	SeizeUnsafely(ctx context.Context, name string) (Lock, error)
}

// Lock is a lock that was acquired. It is safe for concurrent use.
type Lock interface {
	// Name is what it is the lock of.
	Name() string

	// Token is the fencing token: larger than that of every holder of this name before. Hand it to
	// what the lock protects, and have that refuse a token smaller than the largest it has seen:
	// only so is a holder harmless that was stopped, lost the lock and goes on without having
	// noticed. It is 0 where the system can't give one.
	Token() int64

	// Lost is closed when the lock may no longer be held: it could not be renewed in time, the
	// system says that it is gone, it was held for longer than it may be, or the locker was closed.
	// It is not closed by Unlock.
	Lost() <-chan struct{}

	// Until is when the lock ends if nothing renews it, counted from before the request that was
	// last granted: the system keeps it at least until then. Renewals move it; Lost is closed when
	// it has passed. It is of this process' monotonic clock, so compare it with time.Now and send
	// it to nobody. The zero time: the lock has no end of its own. Once the lock is over it doesn't
	// change any more, and means nothing.
	Until() time.Time

	// Err is nil while the lock is held, ErrLost when it was lost, and ErrNotHeld after Unlock. It
	// looks at the clock, so it can know before Lost is closed.
	Err() error

	// Unlock gives the lock back. It returns nil when it was held until now, and ErrLost when it
	// had been lost: then another may have held it meanwhile. ctx bounds how long Unlock waits for
	// the answer, not the attempt, so a deferred Unlock works with a context that has ended; then
	// it returns nil or an error that wraps ctx's. An error of the system means that the lock ends
	// by itself, one lease later at most. Another Unlock waits for the same answer.
	Unlock(ctx context.Context) error
}
