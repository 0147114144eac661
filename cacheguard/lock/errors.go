package lock

import "github.com/cacheguard/cacheguard/internal/tenure"

// MaxName is the maximum length of a name in bytes: 512.
const MaxName = tenure.MaxName

var (
	// ErrHeld says that another holder has the lock. TryLock returns it.
	ErrHeld = tenure.ErrHeld

	// ErrLost says that a lock ended before it was unlocked. It is also the cause of a [Context]
	// that ended because its lock was lost.
	ErrLost = tenure.ErrLost

	// ErrNotHeld is what [Lock.Err] returns after Unlock.
	ErrNotHeld = tenure.ErrNotHeld

	// ErrClosed says that the Locker was closed. A Locker returns it after its Close.
	ErrClosed = tenure.ErrClosed
)
