package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var rueidisCacheContender = contender.Contender{
	Name: "rueidis-cache", OwnClient: true, What: "client-side caching, and rueidislock before the load: the first GET is a DoCache, the rest " + recipe,
	Note: of("github.com/redis/rueidis") + ", DoCache for -ttl, lock as with rueidislock, client with its defaults. Hits come from the memory of the " +
		"process: compare them with cacheguard-local. rueidisaside, another module of its authors, is not compared. It needs a redis-server, not an embedded one.",
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
		return &locked{r, rueidisShelf{client, r.TTL}, rueidisLock(locker), end}, nil
	},
}

// rueidisShelf has what was read before in the memory of the process, until Redis says that it has
// changed. Redis says so to who changed it, too, but after the reply, and mostly on another
// connection.
type rueidisShelf struct {
	client rueidis.Client
	ttl    time.Duration // in memory
}

func (s rueidisShelf) near(ctx context.Context, key string) (string, bool, error) {
	return kept(s.client.DoCache(ctx, s.client.B().Get().Key(key).Cache(), s.ttl))
}

func (s rueidisShelf) get(ctx context.Context, key string) (string, bool, error) {
	return kept(s.client.Do(ctx, s.client.B().Get().Key(key).Build()))
}

func kept(r rueidis.RedisResult) (string, bool, error) {
	switch text, err := r.ToString(); {
	case rueidis.IsRedisNil(err):
		return "", false, nil
	case err != nil:
		return "", false, err
	default:
		return text, true, nil
	}
}

func (s rueidisShelf) set(ctx context.Context, key, text string, ttl time.Duration) error {
	return s.client.Do(ctx, s.client.B().Set().Key(key).Value(text).Px(ttl).Build()).Error()
}

func (s rueidisShelf) del(ctx context.Context, key string) error {
	return s.client.Do(ctx, s.client.B().Del().Key(key).Build()).Error()
}
