package stage

import "context"

// expire is SETNX and then EXPIRE. If a holder dies, its lock expires.
//
// Its flaw: if a holder dies between the two commands, its lock stays for ever, as with setnx.
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
