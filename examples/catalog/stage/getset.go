package stage

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// getset sets the time at which the lock ends as its value. Whoever finds that over sets its own
// with GETSET, and has the lock if what stood there was still the time that was over: of several
// that try only the first reads that.
//
// Its flaws: the time is that of the holder's clock, so a replica whose clock is ahead takes locks
// that are held. And who comes second has moved the end of the first one's lock all the same.
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

// over returns the time that stands in the lock, and whether it is over by this replica's clock.
func (g *getset) over(ctx context.Context) (found string, over bool, err error) {
	found, err = g.Redis.Get(ctx, g.name).Result()
	if err == redis.Nil {
		return "", false, nil // given back: the next round gets it
	}
	if err != nil {
		return "", false, err
	}
	ends, err := strconv.ParseInt(found, 10, 64)
	return found, err == nil && time.UnixMilli(ends).Before(g.Now()), err
}

// unlock deletes the lock, unless it has ended by now and may be another's.
func (g *getset) unlock(ctx context.Context) error {
	if g.Now().After(g.ends) {
		return g.At(ctx, NotMine)
	}
	return g.del(ctx, g.name)
}
