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

// openRedsync is redsync on one server for handover, with its defaults: 32 tries, 50 to 250 ms
// apart at random.
func openRedsync(ctx context.Context, rdb *redis.Client) (program.LockFunc, func(), error) {
	rs := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		m, err := redsyncLock(ctx, rs, name)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			_, err := m.UnlockContext(ctx)
			return err
		}, nil
	}, func() {}, rdb.Ping(ctx).Err()
}

// redsyncLock waits until ctx ends.
func redsyncLock(ctx context.Context, rs *redsync.Redsync, name string, o ...redsync.Option) (*redsync.Mutex, error) {
	for {
		m := rs.NewMutex(name, o...)
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return m, nil
		case ctx.Err() == nil && (errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)):
			// Its tries are used up: whoever still wants the lock calls again.
		default:
			return nil, err
		}
	}
}

var redsyncContender = contender.Contender{
	Name: "redsync", What: "a lock that polls, " + recipe,
	Note: of("github.com/go-redsync/redsync/v4") + " on one server, its own delay of half to two and a half times -poll at random (50 to 250 ms), WithExpiry of -lock-ttl without Extend; asked again when its 32 tries are used up.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		rs := redsync.New(goredis.NewPool(r.Redis))
		// Its own spread, 50 to 250 ms, made for any -poll: a fixed delay keeps all who begin at
		// the same moment in step.
		delay := func(int) time.Duration { return r.PollTime/2 + rand.N(2*r.PollTime) }
		return lockedOn(r, func(ctx context.Context, name string) (context.Context, func(), error) {
			m, err := redsyncLock(ctx, rs, name, redsync.WithExpiry(r.LockTTL), redsync.WithRetryDelayFunc(delay))
			if err != nil {
				return nil, nil, err
			}
			return ctx, func() { _, _ = m.UnlockContext(ctx) }, nil // a lock that has ended makes no value wrong
		}, func() {}), r.Redis.Ping(ctx).Err()
	},
}
