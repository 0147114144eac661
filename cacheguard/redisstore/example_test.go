package redisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// A process has one store for all of its caches. With ContextTimeoutEnabled go-redis ends a command
// when the caller's time is over. Warm dials, subscribes and loads the scripts, so that the first
// request needn't do it.
func Example() {
	server, err := miniredis.Run() // in your program: Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()

	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{Prefix: "shop"})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if err := store.Warm(ctx); err != nil {
		fmt.Println("going on without Redis:", err)
	}
	stock, err := cacheguard.New(store, cacheguard.Options[int]{Name: "stock", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer stock.Close()

	n, err := stock.Get(ctx, "42", func(context.Context) (int, error) { return 7, nil })
	fmt.Println(n, err, server.Exists("shop:stock:{42}"))
	// Output: 7 <nil> true
}

// A cluster and a Sentinel need their own client of go-redis, and nothing else.
func ExampleNew() {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{"redis-a:6379", "redis-b:6379", "redis-c:6379"},
		ContextTimeoutEnabled: true,
		ReadTimeout:           time.Second, // a node that hangs is noticed within twice that
	})
	sentinels := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            "shop",
		SentinelAddrs:         []string{"sentinel-a:26379", "sentinel-b:26379", "sentinel-c:26379"},
		ContextTimeoutEnabled: true,
	})
	for _, client := range []redis.UniversalClient{cluster, sentinels} {
		store, err := redisstore.New(client, redisstore.Options{})
		if err != nil {
			panic(err)
		}
		defer store.Close()
		defer client.Close()
	}
	// Output:
}
