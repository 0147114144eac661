package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/viccon/sturdyc"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var sturdycContender = contender.Contender{
	Name: "sturdyc", What: "in memory, with distributed storage behind it",
	Note: of("github.com/viccon/sturdyc") +
		", 10,000 entries in 10 shards, WithMissingRecordStorage, WithDistributedStorage on Redis, both for -ttl, without early refreshes. " +
		"Values are written to Redis in the background, after the answer. It knows no lock between processes; a change reaches Redis and the memory of its own process only.",
	Better: "It puts loads and refreshes of many keys together into batches, so that the origin gets one query for many of them.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		storage := sturdycStorage{r.Redis, r.TTL}
		return &sturdy{r,
				sturdyc.New[string](10_000, 10, r.TTL, 10, sturdyc.WithMissingRecordStorage(),
					sturdyc.WithDistributedStorage(storage),
					sturdyc.WithLog(&sturdyc.NoopLogger{}))},
			r.Redis.Ping(ctx).Err()
	},
}

type sturdy struct {
	contender.Rig
	cache *sturdyc.Client[string]
}

func (s *sturdy) Get(ctx context.Context, key string) (string, bool, error) {
	value, err := s.cache.GetOrFetch(ctx, key, func(ctx context.Context) (string, error) {
		value, found, err := s.Load(ctx, key)
		if err == nil && !found {
			return "", sturdyc.ErrNotFound
		}
		return value, err
	})
	if errors.Is(err, sturdyc.ErrMissingRecord) || errors.Is(err, sturdyc.ErrNotFound) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (s *sturdy) Invalidate(ctx context.Context, key string) error {
	err := s.Redis.Del(ctx, key).Err()
	s.cache.Delete(key)
	return err
}

// Close doesn't stop the goroutine that looks for expired entries, because the library can't stop
// it.
func (s *sturdy) Close() error { return nil }

// sturdycStorage is Redis with the library's interface. An error is treated as a miss.
type sturdycStorage struct {
	rdb *redis.Client
	ttl time.Duration
}

func (s sturdycStorage) Get(ctx context.Context, key string) ([]byte, bool) {
	b, err := s.rdb.Get(ctx, key).Bytes()
	return b, err == nil
}

func (s sturdycStorage) Set(ctx context.Context, key string, value []byte) {
	_ = s.rdb.Set(ctx, key, value, s.ttl).Err()
}

// GetBatch and SetBatch are for the library's batch functions. The benchmark doesn't call them.
func (s sturdycStorage) GetBatch(ctx context.Context, keys []string) map[string][]byte {
	records := map[string][]byte{}
	for _, key := range keys {
		if b, ok := s.Get(ctx, key); ok {
			records[key] = b
		}
	}
	return records
}

func (s sturdycStorage) SetBatch(ctx context.Context, records map[string][]byte) {
	for key, value := range records {
		s.Set(ctx, key, value)
	}
}
