package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/program"
)

const bsmTTL = 10 * time.Second

// linear is the strategy of its examples.
func linear() redislock.RetryStrategy { return redislock.LinearBackoff(100 * time.Millisecond) }

// exponential begins with the least that its documentation recommends.
func exponential() redislock.RetryStrategy {
	return redislock.ExponentialBackoff(16*time.Millisecond, 256*time.Millisecond)
}

// bsm is bsm/redislock. A strategy counts for one lock, so each has its own.
func bsm(strategy func() redislock.RetryStrategy) func(context.Context, *redis.Client) (program.LockFunc, func(), error) {
	return func(ctx context.Context, rdb *redis.Client) (program.LockFunc, func(), error) {
		client := redislock.New(rdb)
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			for {
				held, err := client.Obtain(ctx, name, bsmTTL, &redislock.Options{RetryStrategy: strategy()})
				switch {
				case err == nil:
					return held.Release, nil
				case ctx.Err() == nil && (errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded)):
					// It waits for one TTL at most when ctx has no deadline: whoever still wants the lock calls again.
				default:
					return nil, err
				}
			}
		}, func() {}, rdb.Ping(ctx).Err()
	}
}
