package stage

import "context"

// expire is SETNX, then EXPIRE: the lock of a holder that dies ends by itself.
//
// Its flaw: one that dies between the two leaves the lock behind as before.
type expire struct{ setnx }

func (e *expire) try(ctx context.Context) (bool, error) {
	mine, err := e.setnx.try(ctx)
	if err != nil || !mine {
		return false, err
	}
	if err := e.At(ctx, Between); err != nil {
		return false, err
	}
	return true, e.Redis.Expire(ctx, e.name, e.LockTTL).Err()
}
