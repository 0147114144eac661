package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// redisioContender follows the recipe on
// https://redis.io/docs/latest/develop/use-cases/cache-aside/go/.
var redisioContender = contender.Contender{
	Name: "redisio-recipe",
	What: "the cache-aside recipe of redis.io: HGETALL, a lock by SET NX PX, load, DEL and HSET and EXPIRE, unlock by script",
	Note: of("github.com/redis/go-redis/v9") +
		", a hash for each value, lock for -lock-ttl without renewal. Whoever doesn't get the lock polls the value every -poll " +
		"(the recipe has 25 ms), and loads after one -lock-ttl. A field says that a value doesn't exist. Nothing is coalesced in the process, nothing stops a write after a change.",
	Better: "It is a page of code that you own and can change.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		return &cookbook{r}, contender.DeleteIfMine.Load(ctx, r.Redis).Err()
	},
}

type cookbook struct{ contender.Rig }

// These are the fields of a value's hash.
const (
	valueField   = "value"
	missingField = "missing"
)

func (c *cookbook) Get(ctx context.Context, key string) (string, bool, error) {
	fields, err := c.Redis.HGetAll(ctx, key).Result()
	if err != nil {
		return "", false, err
	}
	if len(fields) > 0 {
		value, found := c.read(fields)
		return value, found, nil
	}
	lock, token := key+":lock", uuid.NewString()
	free, err := c.Redis.SetNX(ctx, lock, token, c.LockTTL).Result()
	if err != nil {
		return "", false, err
	}
	if !free {
		return c.wait(ctx, key)
	}
	defer contender.DeleteIfMine.Run(ctx, c.Redis, []string{lock}, token)
	value, found, err := c.Load(ctx, key)
	if err != nil {
		return "", false, err
	}
	fields = map[string]string{valueField: value}
	if !found {
		fields = map[string]string{missingField: "1"}
	}
	_, err = c.Redis.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Del(ctx, key)
		tx.HSet(ctx, key, fields)
		tx.Expire(ctx, key, c.TTL)
		return nil
	})
	return value, found, err
}

// wait polls for the value that another caller loads. If it hasn't come when the time of a lock is
// over, wait loads the value itself.
func (c *cookbook) wait(ctx context.Context, key string) (string, bool, error) {
	for end := time.Now().Add(c.LockTTL); time.Now().Before(end); {
		select {
		case <-time.After(c.PollTime):
		case <-ctx.Done():
			return "", false, context.Cause(ctx)
		}
		fields, err := c.Redis.HGetAll(ctx, key).Result()
		if err == nil && len(fields) > 0 {
			value, found := c.read(fields)
			return value, found, nil
		}
	}
	return c.Load(ctx, key)
}

func (c *cookbook) read(fields map[string]string) (value string, found bool) {
	if _, missing := fields[missingField]; missing {
		return "", false
	}
	return fields[valueField], true
}

func (c *cookbook) Invalidate(ctx context.Context, key string) error {
	return c.Redis.Del(ctx, key).Err()
}

func (c *cookbook) Close() error { return nil }
