package stage

import "context"

// setnxex is SET NX with an expiry in one command, and DEL.
//
// Its flaw: DEL deletes the lock of any holder. If a holder takes longer than the lock lasts, it
// deletes the lock of the next holder. From then on the next holder and all later holders work
// without a lock.
type setnxex struct{ setnx }

func (s *setnxex) try(ctx context.Context) (bool, error) {
	return s.Redis.SetNX(ctx, s.name, "1", s.LockTTL).Result()
}
