package main

import (
	"context"

	"github.com/dtm-labs/rockscache"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

const rocksNote = ". LockExpire is -lock-ttl, and the lock isn't renewed; LockSleep is -poll, EmptyExpire is -ttl, and RandomExpireAdjustment is 0. " +
	"rockscache subtracts its Delay (10 s) from each lifetime, so the benchmark asks for -ttl plus Delay. For what does not exist it stores an empty value"

var rocksContender = contender.Contender{
	Name: "rockscache", What: "Fetch2, and TagAsDeleted2 after a change",
	Note: of("github.com/dtm-labs/rockscache") + rocksNote +
		". After a change it serves the old value on purpose, while one caller loads.",
	Better: "It needs no messages: any Redis with scripts will do.",
	Open:   openRocks(false),
}

var rocksStrongContender = contender.Contender{
	Name: "rockscache-strong", What: "the same with StrongConsistency",
	Note:   of("github.com/dtm-labs/rockscache") + rocksNote + ".",
	Better: "It needs no messages: any Redis with scripts will do.",
	Open:   openRocks(true),
}

type rocks struct {
	contender.Rig
	client *rockscache.Client
}

func openRocks(strong bool) func(context.Context, contender.Rig) (contender.Protection, error) {
	return func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		o := rockscache.NewDefaultOptions()
		o.LockExpire, o.LockSleep, o.EmptyExpire = r.LockTTL, r.PollTime, r.TTL
		o.RandomExpireAdjustment = 0
		o.StrongConsistency = strong
		return &rocks{r, rockscache.NewClient(r.Redis, o)}, r.Redis.Ping(ctx).Err()
	}
}

func (c *rocks) Get(ctx context.Context, key string) (string, bool, error) {
	value, err := c.client.Fetch2(ctx, key, c.TTL+c.client.Options.Delay, func() (string, error) {
		value, _, err := c.Load(ctx, key)
		return value, err
	})
	return value, value != "", err
}

func (c *rocks) Invalidate(ctx context.Context, key string) error {
	return c.client.TagAsDeleted2(ctx, key)
}

func (c *rocks) Close() error { return nil }
