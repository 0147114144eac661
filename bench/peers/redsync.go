package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/program"
)

// openRedsync is redsync on one server, with its defaults: 32 tries, 50 to 250 ms apart at random.
func openRedsync(ctx context.Context, rdb *redis.Client) (program.LockFunc, func(), error) {
	rs := redsync.New(goredis.NewPool(rdb))
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			m := rs.NewMutex(name)
			err := m.LockContext(ctx)
			var taken *redsync.ErrTaken
			switch {
			case err == nil:
				return func(ctx context.Context) error {
					_, err := m.UnlockContext(ctx)
					return err
				}, nil
			case ctx.Err() == nil && (errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)):
				// Its tries are used up: whoever still wants the lock calls again.
			default:
				return nil, err
			}
		}
	}, func() {}, rdb.Ping(ctx).Err()
}
