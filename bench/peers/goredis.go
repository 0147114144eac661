package main

import (
	"context"

	"github.com/go-redis/cache/v9"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var goredisContender = contender.Contender{
	Name: "goredis-cache", What: "Once of this library",
	Note: of("github.com/go-redis/cache/v9") +
		" without its local tier, which no change in another process would reach. " +
		"It knows no lock between processes, and no \"does not exist\": a sentinel is stored.",
	Better: "It needs no scripts and no messages: a user of Redis with the rights to GET, SET and DEL will do. It compresses MessagePack by default.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		return &once{r, cache.New(&cache.Options{Redis: r.Redis})}, r.Redis.Ping(ctx).Err()
	},
}

type once struct {
	contender.Rig
	cache *cache.Cache
}

func (o *once) Get(ctx context.Context, key string) (value string, found bool, err error) {
	err = o.cache.Once(&cache.Item{Ctx: ctx, Key: key, Value: &value, TTL: o.TTL, Do: func(
		*cache.Item,
	) (any, error) {
		value, found, err := o.Load(ctx, key)
		if err == nil && !found {
			return contender.Missing, nil
		}
		return value, err
	}})
	if err != nil || value == contender.Missing {
		return "", false, err
	}
	return value, true, nil
}

func (o *once) Invalidate(ctx context.Context, key string) error { return o.cache.Delete(ctx, key) }

func (o *once) Close() error { return nil }
