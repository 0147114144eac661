package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/program"
)

// lockFunc waits for a lock. held is the context in which it is held, where the library has such a
// thing; otherwise ctx.
type lockFunc func(ctx context.Context, name string) (held context.Context, unlock func(), err error)

// plainLock is a lock without a context. One that has ended makes no value wrong.
func plainLock(lock program.LockFunc) lockFunc {
	return func(ctx context.Context, name string) (context.Context, func(), error) {
		unlock, err := lock(ctx, name)
		return ctx, func() { _ = unlock(ctx) }, err
	}
}

// locked is what people write with a lock of others: look, lock, look again, load, set, unlock.
type locked struct {
	plain contender.ReadThrough
	lock  lockFunc
	close func()
}

func lockedOn(r contender.Rig, lock lockFunc, close func()) *locked {
	return &locked{contender.ReadThrough{Rig: r}, lock, close}
}

func (l *locked) Get(ctx context.Context, key string) (value string, found bool, err error) {
	if value, found, err := l.plain.Look(ctx, key); !errors.Is(err, redis.Nil) {
		return value, found, err
	}
	ctx, unlock, err := l.lock(ctx, key+":lock")
	if err != nil {
		return "", false, err
	}
	defer unlock()
	return l.plain.Get(ctx, key)
}

func (l *locked) Invalidate(ctx context.Context, key string) error {
	return l.plain.Invalidate(ctx, key)
}

func (l *locked) Close() error {
	l.close()
	return nil
}

// recipe is said of all that use a lock of others.
const recipe = "hand-rolled: GET, lock, GET, load, SET, unlock; each caller takes the lock, none are put together in the process; " +
	"nothing stops a SET after a change"
