package lock

import (
	"context"
	"errors"
)

// Do acquires the lock of a name, calls work, and unlocks when work returns, panics or ends its
// goroutine. The ctx of work is a [Context] of the lock: it ends when the lock is lost. If the
// locker is reentrant (see [Context]) and work calls its Lock with this ctx and the same name, the
// call succeeds at once, unless the lock was lost. If Do can't acquire the lock, it returns the
// error of Lock. Otherwise it returns the errors of work and of Unlock, joined. [ErrLost] is among
// them if the lock was lost before Unlock, so another holder may have run at the same time. To
// learn whether the lock was lost, Do waits for the reply to Unlock even if ctx has ended in the
// meantime.
func Do(
	ctx context.Context, locker Locker, name string,
	work func(ctx context.Context, held Lock) error,
) (err error) {
	held, err := locker.Lock(ctx, name)
	if err != nil {
		return err
	}
	under, cancel := Context(ctx, held)
	defer cancel()
	defer func() {
		if unlocked := held.Unlock(context.WithoutCancel(ctx)); unlocked != nil &&
			!errors.Is(err, unlocked) {
			err = errors.Join(err, unlocked)
		}
	}()
	return work(under, held)
}
