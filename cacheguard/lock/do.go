package lock

import (
	"context"
	"errors"
)

// Do calls work under the lock of a name and unlocks when it returns, panics or ends its goroutine.
// work gets a Context of the lock, so it hears when the lock is lost and may lock the same name
// again. Do returns the error of Lock, or those of work and of Unlock joined: ErrLost is among them
// if work was not alone. To know that it waits for the answer of Unlock, also when ctx has ended
// meanwhile.
func Do(ctx context.Context, locker Locker, name string, work func(ctx context.Context, held Lock) error) (err error) {
	held, err := locker.Lock(ctx, name)
	if err != nil {
		return err
	}
	under, cancel := Context(ctx, held)
	defer cancel()
	defer func() {
		if unlocked := held.Unlock(context.WithoutCancel(ctx)); unlocked != nil && !errors.Is(err, unlocked) {
			err = errors.Join(err, unlocked)
		}
	}()
	return work(under, held)
}
