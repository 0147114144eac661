package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// The report shows an operator how much of a cache is in Redis. The scan is gentle: it looks at
// 1,000 values, and pauses after every 100 names.
func ExampleStore_Scan() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{
		OpTimeout: 5 * time.Second, // Redis is far away
		Logger:    slog.Default().With("part", "cache"),
	})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	stock, err := cacheguard.New(store, cacheguard.Options[int]{Name: "stock"})
	if err != nil {
		panic(err)
	}
	defer stock.Close()
	ctx := context.Background()
	for _, id := range []string{"1", "2", "3"} {
		if err := stock.Set(ctx, id, 7); err != nil {
			panic(err)
		}
	}

	found, err := store.Scan(ctx, "stock", redisstore.ScanOptions{
		Limit: 1000, Count: 100, Pause: 50 * time.Millisecond,
		Hash: "d4735e3a", // which key is it that a line of the log is about?
	})
	fmt.Println(found.Values, found.Found, err)
	// Output: 3 [2] <nil>
}
