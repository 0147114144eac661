package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
)

// These are locks of jobs that take a minute at most. Warm dials and subscribes before the first
// lock is requested. An operator takes the lock of a job that hangs.
func ExampleLocker() {
	var masters []redis.UniversalClient
	for range 3 {
		server, err := miniredis.Run()
		if err != nil {
			panic(err)
		}
		defer server.Close()
		client := redis.NewClient(&redis.Options{
			Addr: server.Addr(), ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1,
		})
		defer client.Close()
		masters = append(masters, client)
	}
	locker, err := redlock.New(masters, redlock.Options{
		Prefix:      "jobs",
		Lease:       30 * time.Second,
		NodeTimeout: 3 * time.Second,
		MaxHold:     time.Minute,
		Drift:       0.02, // virtual machines
		Logger:      slog.Default().With("part", "jobs"),
	})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	ctx := context.Background()
	if err := locker.Warm(ctx); err != nil {
		log.Println("too few masters answer:", err)
	}

	hangs, err := locker.Lock(ctx, "import")
	if err != nil {
		panic(err)
	}
	seized, err := locker.SeizeUnsafely(ctx, "import")
	if err != nil {
		panic(err)
	}
	fmt.Println(errors.Is(hangs.Unlock(ctx), lock.ErrLost))
	fmt.Println(seized.Unlock(ctx))
	// Output:
	// true
	// <nil>
}
