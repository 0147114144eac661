package lab

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	lookAgain = 50 * time.Millisecond
	looks     = 20 // for as many looks a dead lock is shown before the run ends
)

// endWhenDead ends the run when no progress is possible any more: at the last looks there was a
// lock without an expiry, and no living request had it. A single look isn't enough, because the run
// may not know yet that a request has just got the lock. Looks are counted, and not the time,
// because on a busy machine much time can pass between two looks.
func (r *run) endWhenDead(ctx context.Context, end func()) {
	if !slices.Contains([]string{"setnx", "expire", "sqlrow"}, r.settings.Stage) {
		return // the lock ends by itself, or its value is the time of its end
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: r.link.server(), Dialer: r.link.dial, MaxRetries: -1,
	})
	defer rdb.Close()
	for dead := 0; dead < looks; {
		if r.wait(ctx, lookAgain) != nil {
			return
		}
		dead++
		if r.isHeld() || !r.hasEndlessLock(ctx, rdb) {
			dead = 0
		}
	}
	end()
}

// isHeld reports whether the lock is held by a request that can give it back.
func (r *run) isHeld() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acquired) > 0
}

// hasEndlessLock reports whether there is a lock that doesn't end by itself.
func (r *run) hasEndlessLock(ctx context.Context, rdb *redis.Client) bool {
	return r.lockLeft(ctx, rdb) == -1
}

// lockLeft returns the remaining time of the lock in ms. -1 means for ever, and 0 means that there
// is no lock.
func (r *run) lockLeft(ctx context.Context, rdb *redis.Client) float64 {
	if r.settings.Stage == "sqlrow" {
		var rows int
		err := r.world.DB.QueryRowContext(ctx, `SELECT count(*) FROM shop_lock WHERE name = $1`,
			"lock:"+r.key).Scan(&rows)
		if err != nil || rows == 0 {
			return 0
		}
		return -1
	}
	switch left, err := rdb.PTTL(ctx, "lock:"+r.key).Result(); {
	case err != nil || left == -2:
		return 0
	case left == -1:
		return -1
	default:
		return ms(left)
	}
}
