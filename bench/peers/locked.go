package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// absent is how those cache that there is nothing whose libraries don't know of it.
const absent = "\x00absent"

// lockFunc waits for a lock. held is the context in which it is held, where the library has such a
// thing; otherwise ctx.
type lockFunc func(ctx context.Context, name string) (held context.Context, unlock func(), err error)

// shelf is where values are kept that a lock protects.
type shelf interface {
	// near is get, but it may be answered by the process itself.
	near(ctx context.Context, key string) (text string, cached bool, err error)
	get(ctx context.Context, key string) (text string, cached bool, err error)
	set(ctx context.Context, key, text string, ttl time.Duration) error
	del(ctx context.Context, key string) error
}

// locked is what people write with a lock of others: look, lock, look again, load, set, unlock.
type locked struct {
	contender.Rig
	shelf shelf
	lock  lockFunc
	close func()
}

// lockedOn is locked with the rig's client.
func lockedOn(r contender.Rig, lock lockFunc, close func()) *locked {
	return &locked{r, goredisShelf{r.Redis}, lock, close}
}

func (l *locked) Get(ctx context.Context, key string) (value string, found bool, err error) {
	if text, cached, err := l.shelf.near(ctx, key); cached || err != nil {
		return meaning(text, err)
	}
	ctx, unlock, err := l.lock(ctx, key+":lock")
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if text, cached, err := l.shelf.get(ctx, key); cached || err != nil {
		return meaning(text, err)
	}
	if value, found, err = l.Load(ctx, key); err != nil {
		return "", false, err
	}
	text := value
	if !found {
		text = absent
	}
	return value, found, l.shelf.set(ctx, key, text, l.TTL)
}

// meaning is what a text that is kept stands for.
func meaning(text string, err error) (value string, found bool, _ error) {
	if err != nil || text == absent {
		return "", false, err
	}
	return text, true, nil
}

func (l *locked) Invalidate(ctx context.Context, key string) error { return l.shelf.del(ctx, key) }

func (l *locked) Close() error {
	l.close()
	return nil
}

type goredisShelf struct{ rdb *redis.Client }

func (s goredisShelf) near(ctx context.Context, key string) (string, bool, error) {
	return s.get(ctx, key)
}

func (s goredisShelf) get(ctx context.Context, key string) (string, bool, error) {
	switch text, err := s.rdb.Get(ctx, key).Result(); {
	case errors.Is(err, redis.Nil):
		return "", false, nil
	case err != nil:
		return "", false, err
	default:
		return text, true, nil
	}
}

func (s goredisShelf) set(ctx context.Context, key, text string, ttl time.Duration) error {
	return s.rdb.Set(ctx, key, text, ttl).Err()
}

func (s goredisShelf) del(ctx context.Context, key string) error { return s.rdb.Del(ctx, key).Err() }

// recipe is said of all that use locked.
const recipe = "hand-rolled: GET, lock, GET, load, SET, unlock; each caller takes the lock, none are put together in the process; " +
	"nothing stops a SET after a change"
