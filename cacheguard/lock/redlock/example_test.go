package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
)

func Example() {
	ctx := context.Background()
	var masters []redis.UniversalClient
	for range 3 { // use a separate machine for each; in this example they are in this process
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			fmt.Println(err)
			return
		}
		defer server.Close()
		client := redis.NewClient(&redis.Options{
			Addr: server.Addr(), ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1,
		})
		defer client.Close()
		masters = append(masters, client)
	}
	locker, err := redlock.New(masters,
		redlock.Options{Lease: 30 * time.Second, NodeTimeout: 3 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	held, err := locker.Lock(ctx, "invoices/2026-11")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locker.TryLock(ctx, "invoices/2026-11")
	fmt.Println("somebody else:", errors.Is(err, lock.ErrHeld))

	fmt.Println("still held:", held.Err() == nil)
	fmt.Println("given back:", held.Unlock(ctx) == nil)
	// Output:
	// somebody else: true
	// still held: true
	// given back: true
}

// If the lock is lost, Do ends the context of the work.
func ExampleNew() {
	var masters []redis.UniversalClient
	for _, addr := range []string{
		"redis-a:6379", "redis-b:6379", "redis-c:6379", "redis-d:6379", "redis-e:6379",
	} {
		masters = append(masters,
			redis.NewClient(&redis.Options{
				Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1,
			}))
	}
	locker, err := redlock.New(masters, redlock.Options{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	err = lock.Do(context.Background(), locker, "nightly report", func(
		ctx context.Context, held lock.Lock,
	) error {
		return buildReport(ctx) // Lost ends ctx
	})
	if errors.Is(err, lock.ErrLost) {
		fmt.Println("another may have built it too")
	}
}

func buildReport(context.Context) error { return nil }
