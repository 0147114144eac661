package stage

import "context"

// force is like getset, but without GETSET: a request that finds a lock whose time is over deletes
// the lock and tries again.
//
// Its flaw: another request may do the same between GET and DEL. Then the first request deletes the
// other request's lock, which is held.
type force struct{ getset }

func (f *force) try(ctx context.Context) (bool, error) {
	ends := f.Now().Add(f.LockTTL)
	mine, err := f.Redis.SetNX(ctx, f.name, ends.UnixMilli(), 0).Result()
	if err != nil || mine {
		f.ends = ends
		return mine, err
	}
	_, over, err := f.over(ctx)
	if err != nil || !over {
		return false, err
	}
	if err := f.At(ctx, Between); err != nil {
		return false, err
	}
	if err := f.Redis.Del(ctx, f.name).Err(); err != nil {
		return false, err
	}
	if err := f.At(ctx, Broken); err != nil {
		return false, err
	}
	f.ends = ends
	return f.Redis.SetNX(ctx, f.name, ends.UnixMilli(), 0).Result()
}
