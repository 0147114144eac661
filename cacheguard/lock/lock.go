package lock

import (
	"context"
	"time"
)

// Locker hands out locks by name. At any time at most one holder in the fleet has the lock of a
// name, as far as the system behind the Locker can guarantee that (see the package documentation).
// A name consists of any bytes, from 1 to [MaxName] of them. A Locker is safe for concurrent use.
type Locker interface {
	// Lock waits until it has acquired the lock. If ctx ends first, Lock returns an error that
	// wraps the error of ctx. If the locker is closed, the error wraps [ErrClosed]. If the system
	// behind the locker can't be used, Lock returns the error of that system. After an error the
	// caller holds nothing: a lock that the system may have granted without the caller learning of
	// it is given back in the background. ctx limits only the acquisition. The lock is held until
	// Unlock, even if ctx ends.
	Lock(ctx context.Context, name string) (Lock, error)

	// TryLock is like Lock, but doesn't wait for another holder. If another holder has the lock, it
	// returns an error that wraps [ErrHeld].
	TryLock(ctx context.Context, name string) (Lock, error)
}

// Continuer is a [Locker] whose locks can be handed over to another process: a process that knows
// the fencing token of a lock can take the lock over. The lockers of redislock and sqllock are
// Continuers.
type Continuer interface {
	Locker

	// Continue takes over the lock of a name from the holder with this fencing token, for example
	// when a job continues in another process. The lock is never free in between. The caller gets a
	// larger token, so the protected resource can refuse anything that the previous holder still
	// sends. The Lost channel of the previous holder is closed at its next renewal, at most a third
	// of a lease later, or when its lease ends if it can't reach the system. The previous holder
	// needn't do anything, and its Unlock returns [ErrLost]. To release a lock on behalf of a
	// process that has ended, continue the lock and unlock it. (If that process is still alive,
	// another process can have the lock before the previous holder learns of its loss.)
	//
	// Continue doesn't wait. If the holder with this token no longer has the lock, the error wraps
	// [ErrLost]. ctx and all other errors have the same meaning as for TryLock. After any other
	// error, the previous holder may nevertheless have lost the lock. Then nobody has the lock
	// until a lease has expired.
	Continue(ctx context.Context, name string, token int64) (Lock, error)
}

// Seizer is a [Locker] whose locks can be taken by force. All lockers of this module are Seizers.
type Seizer interface {
	Locker

	// SeizeUnsafely takes the lock of a name even if another holder has it. It is for operators who
	// know that the holder hangs and can't be ended. It breaks the promise of a Locker. The
	// previous holder learns of its loss at its next renewal, at most a third of a lease later, or
	// after one lease if it can't reach the system. Until then both holders may do what only one of
	// them should do. The protected resource can still tell the two holders apart if it checks
	// their fencing tokens. Calls that wait for the lock go on waiting. The errors are the same as
	// for TryLock, but [ErrHeld] never occurs. After an error the previous holder may still have
	// lost the lock, as with Continue. ctx has the same meaning as for Lock.
	SeizeUnsafely(ctx context.Context, name string) (Lock, error)
}

// Lock is a lock that was acquired. A Lock is safe for concurrent use.
type Lock interface {
	// Name returns the name for which the lock was acquired.
	Name() string

	// Token returns the fencing token. It is larger than the token of every previous holder of this
	// name. Pass the token to the protected resource, and let the resource refuse a token that is
	// smaller than the largest it has seen. A holder that was stopped may lose the lock and go on
	// without noticing. Only this check prevents harm from such a holder. Token returns 0 if the
	// system can't provide fencing tokens.
	Token() int64

	// Lost returns a channel that is closed when the lock is possibly no longer held: the lock
	// could not be renewed in time, the system says that the lock is gone, the lock was held for
	// longer than its limit, or the locker was closed. Unlock doesn't close the channel.
	Lost() <-chan struct{}

	// Until returns the time at which the lock expires if nothing renews it. The lease is counted
	// from before the last successful request was sent, so the system keeps the lock at least until
	// the returned time. A successful renewal moves Until to a later time, but not past the limit
	// of how long the lock may be held (MaxHold in the lockers of this module). Lost is closed when
	// Until has passed. Until is a time of this process' monotonic clock: compare it with time.Now,
	// and don't send it to another process. The zero time means that the lock doesn't expire by
	// itself. After the lock has ended, Until doesn't change any more and has no meaning.
	Until() time.Time

	// Err returns nil while the lock is held, [ErrLost] after the lock was lost, and [ErrNotHeld]
	// after Unlock. Err compares Until with the clock, so it can return ErrLost before Lost is
	// closed.
	Err() error

	// Unlock gives the lock back. It returns nil if the lock was held until this call. It returns
	// [ErrLost] if the lock had been lost. In this case another holder may have had the lock in the
	// meantime. ctx limits how long Unlock waits for the system's reply, not the attempt itself, so
	// a deferred Unlock works with a context that has ended. If ctx has ended, Unlock returns nil,
	// [ErrLost] or an error that wraps the error of ctx. After an error of the system the lock
	// expires by itself, at most one lease later. If Unlock is called again, that call waits for
	// the result of the first one.
	Unlock(ctx context.Context) error
}
