package stage

import "context"

// setnxex is SET NX with an end in one command, and DEL.
//
// Its flaw: DEL deletes whatever is there. A holder that took longer than the lock lasts deletes
// the lock of the next one, whose work goes on without it, and so from one to the next.
type setnxex struct{ setnx }

func (s *setnxex) try(ctx context.Context) (bool, error) {
	return s.Redis.SetNX(ctx, s.name, "1", s.LockTTL).Result()
}
