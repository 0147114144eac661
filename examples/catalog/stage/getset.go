package stage

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// getset stores the time at which the lock ends as the lock's value. A request that finds that this
// time is over sets its own time with GETSET. If GETSET returns the old time, the request has the
// lock. If several requests try, only the first one gets the old time.
//
// Its flaws: the time comes from the holder's clock, so a replica whose clock is ahead takes locks
// that are held. And a request that comes second doesn't get the lock, but has moved the end of the
// first request's lock.
type getset struct {
	*Replica
	name string
	ends time.Time
}

func (g *getset) try(ctx context.Context) (bool, error) {
	ends := g.Now().Add(g.LockTTL)
	mine, err := g.Redis.SetNX(ctx, g.name, ends.UnixMilli(), 0).Result()
	if err != nil || mine {
		g.ends = ends
		return mine, err
	}
	found, over, err := g.over(ctx)
	if err != nil || !over {
		return false, err
	}
	if err := g.At(ctx, Between); err != nil {
		return false, err
	}
	before, err := g.Redis.Do(ctx, "GETSET", g.name, ends.UnixMilli()).Text()
	if err != nil && err != redis.Nil {
		return false, err
	}
	g.ends = ends
	return before == found, nil
}

// over returns the time in the lock, and whether this time is over by this replica's clock.
func (g *getset) over(ctx context.Context) (found string, over bool, err error) {
	found, err = g.Redis.Get(ctx, g.name).Result()
	if err == redis.Nil {
		return "", false, nil // the lock was given back; the next round can get it
	}
	if err != nil {
		return "", false, err
	}
	ends, err := strconv.ParseInt(found, 10, 64)
	return found, err == nil && time.UnixMilli(ends).Before(g.Now()), err
}

// unlock deletes the lock, unless the lock has ended by now and may belong to another request.
func (g *getset) unlock(ctx context.Context) error {
	if g.Now().After(g.ends) {
		return g.At(ctx, NotMine)
	}
	return g.del(ctx, g.name)
}
