package main

import (
	"context"
	"errors"

	"github.com/zeromicro/go-zero/core/stores/cache"
	"github.com/zeromicro/go-zero/core/stores/redis"
	"github.com/zeromicro/go-zero/core/syncx"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var gozeroContender = contender.Contender{
	Name: "go-zero", OwnClient: true, What: "TakeCtx of core/stores/cache",
	Note: of("github.com/zeromicro/go-zero") +
		", WithExpiry and WithNotFoundExpiry of -ttl, which it varies by 5 %, values as JSON. " +
		"It knows no lock between processes. Its Redis client is its own, with a circuit breaker; without Redis it fails on purpose.",
	Better: "Its framework generates the code that caches the rows of a table by each unique index.",
	Open: func(_ context.Context, r contender.Rig) (contender.Protection, error) {
		rds, err := redis.NewRedis(redis.RedisConf{
			Host: r.Redis.Options().Addr, Type: redis.NodeType,
		})
		if err != nil {
			return nil, err
		}
		node := cache.NewNode(rds, syncx.NewSingleFlight(), cache.NewStat("bench"), errAbsent,
			cache.WithExpiry(r.TTL), cache.WithNotFoundExpiry(r.TTL))
		return &gozero{r, node}, nil
	},
}

var errAbsent = errors.New("there is nothing")

type gozero struct {
	contender.Rig
	cache cache.Cache
}

func (g *gozero) Get(ctx context.Context, key string) (value string, found bool, err error) {
	err = g.cache.TakeCtx(ctx, &value, key, func(to any) error {
		v, found, err := g.Load(ctx, key)
		if err == nil && !found {
			return errAbsent
		}
		*to.(*string) = v
		return err
	})
	if g.cache.IsNotFound(err) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (g *gozero) Invalidate(ctx context.Context, key string) error {
	return g.cache.DelCtx(ctx, key)
}

// Close leaves the client open, because the library keeps one client for each address and never
// closes it.
func (g *gozero) Close() error { return nil }
