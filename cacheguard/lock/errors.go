package lock

import "github.com/cacheguard/cacheguard/internal/tenure"

// MaxName is how many bytes a name has at most: 512.
const MaxName = tenure.MaxName

var (
	// ErrHeld is what TryLock returns when another holder has the lock.
	ErrHeld = tenure.ErrHeld

	// ErrLost says that a lock ended before it was unlocked. It is also the cause of a Context that
	// ended for that.
	ErrLost = tenure.ErrLost

	// ErrNotHeld is Lock.Err after Unlock.
	ErrNotHeld = tenure.ErrNotHeld

	// ErrClosed is what a Locker returns after its Close.
	ErrClosed = tenure.ErrClosed
)
