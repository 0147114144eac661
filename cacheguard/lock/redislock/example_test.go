package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
)

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	// The default of 1 s is enough outside of tests.
	locker, err := redislock.New(rdb, redislock.Options{OpTimeout: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	held, err := locker.Lock(ctx, "invoices")
	if err != nil {
		panic(err)
	}
	_, err = locker.TryLock(ctx, "invoices")
	fmt.Println("somebody else:", errors.Is(err, lock.ErrHeld))

	under, cancel := lock.Context(ctx, held) // ends when the lock is lost
	defer cancel()
	again, err := locker.Lock(under, "invoices")
	fmt.Println("its holder:", err)
	_ = again.Unlock(ctx)

	fmt.Println("given back:", held.Unlock(ctx))
	// Output:
	// somebody else: true
	// its holder: <nil>
	// given back: <nil>
}
