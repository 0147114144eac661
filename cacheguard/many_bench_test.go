package cacheguard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// GetMany of 100 keys that are all there, beside MGET of the same frames, in one run:
//
//	go test -run '^$' -bench BenchmarkGetMany -count 6 ./cacheguard
func BenchmarkGetMany(b *testing.B) {
	server := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	for _, size := range []int{100, 1000} {
		value := strings.Repeat("v", size)
		b.Run(fmt.Sprint(size, "/bytes"), func(b *testing.B) {
			benchMany(b, rdb, fmt.Sprint("b", size), []byte(value))
		})
		b.Run(fmt.Sprint(size, "/string"), func(b *testing.B) {
			benchMany(b, rdb, fmt.Sprint("s", size), value)
		})
	}
}

func benchMany[V any](b *testing.B, rdb *redis.Client, prefix string, value V) {
	ctx := context.Background()
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: prefix, OpTimeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	cache, err := cacheguard.New(store,
		cacheguard.Options[V]{Name: "many", TTL: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer cache.Close()
	keys, names := make([]string, 100), make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
		names[i] = prefix + ":many:{" + keys[i] + "}"
		if err := cache.Set(ctx, keys[i], value); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("MGET", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if vals, err := rdb.MGet(ctx, names...).Result(); err != nil ||
				slices.Contains(vals, nil) {
				b.Fatal(err)
			}
		}
	})
	b.Run("GetMany", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			got, err := cache.GetMany(ctx, keys, func(
				context.Context, []string,
			) (map[string]V, error) {
				return nil, fmt.Errorf("this must be a hit")
			})
			if err != nil || len(got) != len(keys) {
				b.Fatal(err)
			}
		}
	})
}

// Invalidating by tag takes the same time however many values have the tag:
//
//	go test -run '^$' -bench BenchmarkInvalidateTags -count 6 ./cacheguard
func BenchmarkInvalidateTags(b *testing.B) {
	server := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx := context.Background()
	for _, n := range []int{1, 1000, 100_000} {
		store, err := redisstore.New(rdb, redisstore.Options{
			Prefix: fmt.Sprint("tagged", n), OpTimeout: time.Minute,
		})
		if err != nil {
			b.Fatal(err)
		}
		defer store.Close()
		cache, err := cacheguard.New(store,
			cacheguard.Options[string]{Name: "tags", TTL: time.Hour, LeaseTTL: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		defer cache.Close()
		if err := cache.SetEntry(ctx, "0",
			cacheguard.Entry[string]{Value: "v", Tags: []string{"tag"}}); err != nil {
			b.Fatal(err)
		}
		frame, err := rdb.Get(ctx, fmt.Sprint("tagged", n, ":tags:{0}")).Result()
		if err != nil {
			b.Fatal(err)
		}
		pipe := rdb.Pipeline()
		for i := 1; i < n; i++ { // the same frame under all names: one by one takes a while
			pipe.Set(ctx, fmt.Sprint("tagged", n, ":tags:{", i, "}"), frame, time.Hour)
			if i%1000 == 0 || i == n-1 {
				if _, err := pipe.Exec(ctx); err != nil {
					b.Fatal(err)
				}
			}
		}
		last := fmt.Sprint(n - 1)
		if r, err := cache.Peek(ctx, last); err != nil || r.Value != "v" {
			b.Fatalf("the last one is %+v, %v", r, err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := cache.InvalidateTags(ctx, "tag"); err != nil {
					b.Fatal(err)
				}
			}
		})
		if r, err := cache.Peek(ctx, last); err != nil || r.Status != cacheguard.StatusMiss {
			b.Fatalf("the last one is %+v, %v", r, err)
		}
	}
}
