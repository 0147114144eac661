package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/program"
)

// lockFunc waits for a lock. If the library has a context for a held lock, held is this context.
// Otherwise held is ctx.
type lockFunc func(ctx context.Context,
	name string) (held context.Context, unlock func(), err error)

// plainLock returns the lockFunc of a lock without a context. Its unlock ignores errors, because
// they say nothing about the value.
func plainLock(lock program.LockFunc) lockFunc {
	return func(ctx context.Context, name string) (context.Context, func(), error) {
		unlock, err := lock(ctx, name)
		return ctx, func() { _ = unlock(ctx) }, err
	}
}

// locked is the pattern that people write with a library's lock: look, lock, look again, load, set,
// unlock.
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

// recipe is the note for all contenders that use a library's lock.
const recipe = "code written by hand: GET, lock, GET, load, SET, unlock. Each caller takes the lock itself, also within one process, and " +
	"nothing stops a SET that comes after a change"
