package main

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var rueidisCacheContender = contender.Contender{
	Name: "rueidis-cache", OwnClient: true,
	What: "client-side caching, and rueidislock before the load: the first GET is a DoCache, the rest is " +
		recipe,
	Note: of("github.com/redis/rueidis") +
		", DoCache for -ttl, lock as with rueidislock, client with its defaults. Hits come from " +
		"the memory of the process: compare them with those of cacheguard-local, which is " +
		"cacheguard with its local tier (bench/RESULTS.md has both). rueidisaside, another " +
		"module by the authors of rueidis, is not compared. It needs a redis-server, not an " +
		"embedded one.",
	Better: "Redis itself tells the process of each change of a key, by whatever program and language, so hits from memory are up to date without a call of Invalidate.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		client, err := rueidis.NewClient(rueidisOptions(r.Redis))
		if err != nil {
			return nil, err
		}
		locker, err := openRueidisLocker(r.Redis, r.LockTTL)
		if err != nil {
			client.Close()
			return nil, err
		}
		end := func() {
			locker.Close()
			client.Close()
		}
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			end()
			return nil, err
		}
		return &rueidisCache{r, client, rueidisLock(locker), end}, nil
	},
}

// rueidisCache keeps values in the memory of the process until Redis reports that they have
// changed. Redis reports a change also to the client that made it, but after the reply, and mostly
// on another connection.
type rueidisCache struct {
	contender.Rig
	client rueidis.Client
	lock   lockFunc
	close  func()
}

func (c *rueidisCache) Get(ctx context.Context, key string) (value string, found bool, err error) {
	near := c.client.DoCache(ctx, c.client.B().Get().Key(key).Cache(), c.TTL)
	if value, found, err := kept(near); !rueidis.IsRedisNil(err) {
		return value, found, err
	}
	ctx, unlock, err := c.lock(ctx, key+":lock")
	if err != nil {
		return "", false, err
	}
	defer unlock()
	if value, found, err := kept(c.client.Do(ctx,
		c.client.B().Get().Key(key).Build())); !rueidis.IsRedisNil(err) {
		return value, found, err
	}
	if value, found, err = c.Load(ctx, key); err != nil {
		return "", false, err
	}
	text := value
	if !found {
		text = contender.Missing
	}
	return value, found,
		c.client.Do(ctx, c.client.B().Set().Key(key).Value(text).Px(c.TTL).Build()).Error()
}

func kept(r rueidis.RedisResult) (value string, found bool, err error) {
	text, err := r.ToString()
	if err != nil || text == contender.Missing {
		return "", false, err
	}
	return text, true, nil
}

func (c *rueidisCache) Invalidate(ctx context.Context, key string) error {
	return c.client.Do(ctx, c.client.B().Del().Key(key).Build()).Error()
}

func (c *rueidisCache) Close() error {
	c.close()
	return nil
}
