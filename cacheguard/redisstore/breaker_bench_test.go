package redisstore_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// BenchmarkBreakerOpen measures, in one run, a call while Redis doesn't answer, its load alone, and
// a hit from a Redis that answers:
//
//	go test -run '^$' -bench BenchmarkBreakerOpen -count 6 ./cacheguard/redisstore
//
// "one" is one goroutine, "many" is 64 for each processor, each on a key of its own.
func BenchmarkBreakerOpen(b *testing.B) {
	server := redistest.Start(b)
	proxy := redistest.StartProxy(b, server.Addr())
	load := func(context.Context) (string, error) { return "v", nil }
	open := func(addr string) *cacheguard.Cache[string] {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		b.Cleanup(func() { _ = rdb.Close() })
		quiet := slog.New(slog.DiscardHandler)
		store, err := redisstore.New(rdb, redisstore.Options{Prefix: newPrefix(), Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = store.Close() })
		cache, err := cacheguard.New(store,
			cacheguard.Options[string]{Name: "test", TTL: time.Hour, MaxLoads: -1, Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cache.Close() })
		return cache
	}
	healthy, cut := open(server.Addr()), open(proxy.Addr())
	proxy.Blackhole(true)
	for range 10 { // more failures than the breaker tolerates
		if _, err := cut.Get(b.Context(), "k", load); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		call func(ctx context.Context, key string) (string, error)
	}{
		{"load", func(ctx context.Context, _ string) (string, error) { return load(ctx) }},
		{"breaker open", func(ctx context.Context, key string) (string, error) {
			return cut.Get(ctx, key, load)
		}},
		{"hit", func(ctx context.Context, key string) (string, error) {
			return healthy.Get(ctx, key, load)
		}},
	} {
		b.Run("one/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			took := make([]time.Duration, 0, 1<<22)
			for b.Loop() {
				began := time.Now()
				if v, err := c.call(b.Context(), "k"); v != "v" || err != nil {
					b.Fatal(v, err)
				}
				if len(took) < cap(took) {
					took = append(took, time.Since(began))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "median-ns")
		})
		b.Run("many/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				key := newPrefix()
				for pb.Next() {
					if v, err := c.call(b.Context(), key); v != "v" || err != nil {
						b.Error(v, err)
						return
					}
				}
			})
		})
	}
}
