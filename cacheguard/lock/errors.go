package lock

import "github.com/cacheguard/cacheguard/internal/tenure"

// MaxName is the maximum length of a name in bytes: 512.
const MaxName = tenure.MaxName

var (
	// ErrHeld is the error of TryLock if another holder has the lock.
	ErrHeld = tenure.ErrHeld

	// ErrLost is the error for a lock that ended before it was unlocked. It is also the cause of a
	// [Context] that ended because its lock was lost.
	ErrLost = tenure.ErrLost

	// ErrNotHeld is the error that [Lock.Err] returns after Unlock.
	ErrNotHeld = tenure.ErrNotHeld

	// ErrClosed is the error that a Locker returns after its Close.
	ErrClosed = tenure.ErrClosed
)
