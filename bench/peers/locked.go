package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// absent is how those cache that there is nothing whose libraries don't know of it.
const absent = "\x00absent"

// lockFunc waits for a lock. held is the context in which it is held, where the library has such a thing; otherwise ctx.
type lockFunc func(ctx context.Context, name string) (held context.Context, unlock func(), err error)

// locked is what people write with a lock of others: look, lock, look again, load, set, unlock.
type locked struct {
	contender.Rig
	lock  lockFunc
	close func()
}

func (l *locked) Get(ctx context.Context, key string) (value string, found bool, err error) {
	if value, found, cached, err := l.look(ctx, key); cached || err != nil {
		return value, found, err
	}
	ctx, unlock, err := l.lock(ctx, key+":lock")
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if value, found, cached, err := l.look(ctx, key); cached || err != nil {
		return value, found, err
	}
	if value, found, err = l.Load(ctx, key); err != nil {
		return "", false, err
	}
	text := value
	if !found {
		text = absent
	}
	return value, found, l.Redis.Set(ctx, key, text, l.TTL).Err()
}

func (l *locked) look(ctx context.Context, key string) (value string, found, cached bool, err error) {
	switch v, err := l.Redis.Get(ctx, key).Result(); {
	case errors.Is(err, redis.Nil):
		return "", false, false, nil
	case err != nil:
		return "", false, false, err
	case v == absent:
		return "", false, true, nil
	default:
		return v, true, true, nil
	}
}

func (l *locked) Invalidate(ctx context.Context, key string) error {
	return l.Redis.Del(ctx, key).Err()
}

func (l *locked) Close() error {
	l.close()
	return nil
}

// recipe is said of all that use locked.
const recipe = "hand-rolled: GET, lock, GET, load, SET, unlock; each caller takes the lock, none are put together in the process; " +
	"nothing stops a SET after a change"
