package lockstore_test

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// The locker is in another data centre, so a step may wait half a second for it. New reports errors
// in the options. Wrap takes the default options.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	locker, err := redislock.New(rdb, redislock.Options{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	store := memstore.New(memstore.Options{})
	defer store.Close()

	guarded, err := lockstore.New(store, locker, lockstore.Options{
		Patience: 500 * time.Millisecond,
		Logger:   slog.Default().With("part", "locks"),
	})
	if err != nil {
		panic(err)
	}
	defer guarded.Close() // caches use guarded in place of store

	byDefault := lockstore.Wrap(store, locker)
	defer byDefault.Close()
	fmt.Println("ready")
	// Output: ready
}
