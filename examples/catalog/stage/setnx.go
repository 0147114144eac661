package stage

import "context"

// setnx is SETNX and DEL: whoever sets the lock has it.
//
// Its flaw: a holder that dies leaves the lock behind, and nobody ever loads again.
type setnx struct {
	*Replica
	name string
}

func (s *setnx) try(ctx context.Context) (bool, error) {
	return s.Redis.SetNX(ctx, s.name, "1", 0).Result()
}

func (s *setnx) unlock(ctx context.Context) error { return s.del(ctx, s.name) }

// del deletes a lock, whosever it is.
func (r *Replica) del(ctx context.Context, name string) error {
	if err := r.Redis.Del(ctx, name).Err(); err != nil {
		return err
	}
	return r.At(ctx, Unlocked)
}
