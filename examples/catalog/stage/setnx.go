package stage

import "context"

// setnx is SETNX and DEL: the request that sets the lock has it.
//
// Its flaw: if a holder dies, its lock stays, and no request ever loads again.
type setnx struct {
	*Replica
	name string
}

func (s *setnx) try(ctx context.Context) (bool, error) {
	return s.Redis.SetNX(ctx, s.name, "1", 0).Result()
}

func (s *setnx) unlock(ctx context.Context) error { return s.del(ctx, s.name) }

// del deletes a lock, even if another request has it.
func (r *Replica) del(ctx context.Context, name string) error {
	if err := r.Redis.Del(ctx, name).Err(); err != nil {
		return err
	}
	return r.At(ctx, Unlocked)
}
