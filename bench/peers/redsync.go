package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/program"
)

// openRedsync opens redsync on one server for handover, with its defaults: 32 tries, at random
// intervals of 50 to 250 ms.
func openRedsync(ctx context.Context, rdb *redis.Client) (program.LockFunc, func(), error) {
	return redsyncLock(rdb), func() {}, rdb.Ping(ctx).Err()
}

// redsyncLock returns a lock function that waits until ctx ends.
func redsyncLock(rdb *redis.Client, o ...redsync.Option) program.LockFunc {
	rs := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			m := rs.NewMutex(name, o...)
			err := m.LockContext(ctx)
			var taken *redsync.ErrTaken
			switch {
			case err == nil:
				return func(ctx context.Context) error {
					_, err := m.UnlockContext(ctx)
					return err
				}, nil
			case ctx.Err() == nil && (errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)):
				// The library's tries are used up. A caller that still wants the lock calls again.
			default:
				return nil, err
			}
		}
	}
}

var redsyncContender = contender.Contender{
	Name: "redsync", What: "a lock that polls, with " + recipe,
	Note: of("github.com/go-redsync/redsync/v4") +
		" on one server, its own delay of half to two and a half times -poll at random (50 to 250 ms), WithExpiry of -lock-ttl without Extend; asked again when its 32 tries are used up.",
	Better: "It works with redigo and rueidis as well as with go-redis, and locks anything, on several servers, too.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		// This is the library's own spread, 50 to 250 ms, scaled to -poll. With a fixed delay all
		// callers that begin at the same moment would stay in step.
		delay := func(int) time.Duration { return r.PollTime/2 + rand.N(2*r.PollTime) }
		lock := redsyncLock(r.Redis, redsync.WithExpiry(r.LockTTL),
			redsync.WithRetryDelayFunc(delay))
		return lockedOn(r, plainLock(lock), func() {}), r.Redis.Ping(ctx).Err()
	},
}
