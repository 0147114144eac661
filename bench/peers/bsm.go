package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/program"
)

const bsmTTL = 10 * time.Second

// linear is the strategy in the library's examples.
func linear() redislock.RetryStrategy { return redislock.LinearBackoff(100 * time.Millisecond) }

// exponential begins with the shortest wait that the library's documentation recommends.
func exponential() redislock.RetryStrategy {
	return redislock.ExponentialBackoff(16*time.Millisecond, 256*time.Millisecond)
}

// bsm returns the Open of bsm/redislock for handover.
func bsm(
	strategy func() redislock.RetryStrategy,
) func(context.Context, *redis.Client) (program.LockFunc, func(), error) {
	return func(ctx context.Context, rdb *redis.Client) (program.LockFunc, func(), error) {
		return bsmLock(rdb, bsmTTL, strategy), func() {}, rdb.Ping(ctx).Err()
	}
}

// bsmLock returns a lock function that waits until ctx ends. A strategy has the state of one lock,
// so each lock has its own strategy.
func bsmLock(
	rdb *redis.Client, ttl time.Duration, strategy func() redislock.RetryStrategy,
) program.LockFunc {
	client := redislock.New(rdb)
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			held, err := client.Obtain(ctx, name, ttl,
				&redislock.Options{RetryStrategy: strategy()})
			switch {
			case err == nil:
				return held.Release, nil
			case ctx.Err() == nil && (errors.Is(err, redislock.ErrNotObtained) ||
				errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)):
				// If ctx has no deadline, the library waits for one TTL at most. This time may end
				// in the middle of a command, and then the error is an i/o timeout. A caller that
				// still wants the lock calls again.
			default:
				return nil, err
			}
		}
	}
}

var bsmContender = contender.Contender{
	Name: "bsm-redislock", What: "a lock that polls, with " + recipe,
	Note: of("github.com/bsm/redislock") +
		", LinearBackoff of -poll as in its examples, which keeps all who begin at the same moment in step, lock for -lock-ttl without renewal; asked again when it gives up, after one TTL.",
	Better: "It is a lock of one file for anything, with metadata and a choice of retry strategies.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		strategy := func() redislock.RetryStrategy { return redislock.LinearBackoff(r.PollTime) }
		lock := plainLock(bsmLock(r.Redis, r.LockTTL, strategy))
		return lockedOn(r, lock, func() {}), r.Redis.Ping(ctx).Err()
	},
}
