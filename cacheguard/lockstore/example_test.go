package lockstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// The values are in one Redis, and the locks of their loads are in another Redis.
func Example() {
	values, locks := miniredis.NewMiniRedis(), miniredis.NewMiniRedis()
	for _, server := range []*miniredis.Miniredis{values, locks} {
		if err := server.Start(); err != nil {
			panic(err)
		}
		defer server.Close()
	}
	client := func(server *miniredis.Miniredis) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	}
	valuesClient, locksClient := client(values), client(locks)
	defer valuesClient.Close()
	defer locksClient.Close()

	const patience = 20 * time.Second // so that the example doesn't depend on how fast it runs
	store, err := redisstore.New(valuesClient, redisstore.Options{OpTimeout: patience})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	locker, err := redislock.New(locksClient,
		redislock.Options{Lease: time.Minute, OpTimeout: patience})
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	guarded, err := lockstore.New(store, locker, lockstore.Options{Patience: patience})
	if err != nil {
		panic(err)
	}
	defer guarded.Close()
	products, err := cacheguard.New(guarded,
		cacheguard.Options[string]{Name: "product", TTL: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	name, err := products.Get(context.Background(), "42", func(
		ctx context.Context,
	) (string, error) {
		fmt.Println("a load, under", len(locks.Keys()) > 0)
		return "lamp", nil
	})
	fmt.Println(name, err)
	// Output:
	// a load, under true
	// lamp <nil>
}
