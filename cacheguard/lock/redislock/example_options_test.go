package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
)

// These are locks of a queue of jobs. The first job to come gets the lock first, and a lock is held
// for ten minutes at most. Warm dials and subscribes before the first lock is requested. An
// operator takes the lock of a job that hangs.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	locker, err := redislock.New(rdb, redislock.Options{
		Prefix:    "jobs",
		Lease:     15 * time.Second,
		MaxHold:   10 * time.Minute,
		Fair:      true,
		OpTimeout: 2 * time.Second,
		Logger:    slog.Default().With("part", "jobs"),
	})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	ctx := context.Background()
	if err := locker.Warm(ctx); err != nil {
		fmt.Println("going on without Redis:", err)
	}

	hangs, err := locker.Lock(ctx, "import")
	if err != nil {
		panic(err)
	}
	seized, err := locker.SeizeUnsafely(ctx, "import")
	if err != nil {
		panic(err)
	}
	// In the process that continues the job.
	handed, err := locker.Continue(ctx, "import", seized.Token())
	fmt.Println(err, errors.Is(hangs.Unlock(ctx), lock.ErrLost))
	fmt.Println(handed.Unlock(ctx))
	// Output:
	// <nil> true
	// <nil>
}
