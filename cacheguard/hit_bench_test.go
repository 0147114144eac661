package cacheguard_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The way of a hit beside what it stands on, in one run:
//
//	go test -run '^$' -bench BenchmarkHit -count 6 ./cacheguard
//
// "one" is one goroutine, "few" is 16 of them on keys of their own, "distinct" is 256 on keys of
// their own, "same" is 256 on one key. "busy" is 16 beside twice as many goroutines that only
// compute as there are processors.
func BenchmarkHit(b *testing.B) {
	const crowd = 256
	ctx := context.Background()
	server := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	plain := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer plain.Close()
	ap, err := plain.AutoPipeline()
	if err != nil {
		b.Fatal(err)
	}
	caches := make(map[string]*cacheguard.Cache[[]byte])
	for name, rdb := range map[string]*redis.Client{
		"cacheguard": rdb, "cacheguard-plain-client": plain,
	} {
		store, err := redisstore.New(rdb, redisstore.Options{Prefix: name, OpTimeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		defer store.Close()
		cache, err := cacheguard.New(store,
			cacheguard.Options[[]byte]{Name: "hit", TTL: time.Hour, LeaseTTL: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		defer cache.Close()
		caches[name] = cache
	}
	value := []byte(strings.Repeat("v", 1024))
	keys := make([]string, crowd)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
		if err := plain.Set(ctx, keys[i], value, time.Hour).Err(); err != nil {
			b.Fatal(err)
		}
		for _, cache := range caches {
			if err := cache.Set(ctx, keys[i], value); err != nil {
				b.Fatal(err)
			}
		}
	}
	load := func(context.Context) ([]byte, error) { return nil, fmt.Errorf("this must be a hit") }
	guarded := func(name string) func(string) error {
		return func(key string) error {
			_, err := caches[name].Get(ctx, key, load)
			return err
		}
	}
	bare := func(key string) error { return plain.Get(ctx, key).Err() }
	pipelined := func(key string) error { return ap.Get(ctx, key).Err() }

	for _, c := range []struct {
		name string
		get  func(key string) error
	}{
		{"GET", bare}, {"cacheguard", guarded("cacheguard")},
		{"cacheguard-plain-client", guarded("cacheguard-plain-client")},
	} {
		b.Run("one/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.get(keys[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, c := range []struct {
		name    string
		get     func(key string) error
		callers int
		keys    int
		busy    bool
	}{
		{"few/GET", bare, 16, 16, false}, {"few/AutoPipeline", pipelined, 16, 16, false},
		{"few/cacheguard", guarded("cacheguard"), 16, 16, false},
		{"distinct/GET", bare, crowd, crowd, false},
		{"distinct/AutoPipeline", pipelined, crowd, crowd, false},
		{"distinct/cacheguard", guarded("cacheguard"), crowd, crowd, false},
		{
			"distinct/cacheguard-plain-client", guarded("cacheguard-plain-client"), crowd, crowd,
			false,
		},
		{"same/cacheguard", guarded("cacheguard"), crowd, 1, false},
		{"busy/GET", bare, 16, 16, true}, {"busy/AutoPipeline", pipelined, 16, 16, true},
		{"busy/cacheguard", guarded("cacheguard"), 16, 16, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var done sync.WaitGroup
			if c.busy {
				for range 2 * runtime.GOMAXPROCS(0) {
					done.Go(func() {
						for left.Load() > 0 {
							for range 100_000 {
							}
						}
					})
				}
			}
			b.ResetTimer()
			for i := range c.callers {
				key := keys[i%c.keys]
				done.Go(func() {
					for left.Add(-1) >= 0 {
						if err := c.get(key); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			done.Wait()
		})
	}
}
