package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
)

// newLocker returns a locker on a Redis in this process.
func newLocker() (locker *redislock.Locker, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	if locker, err = redislock.New(rdb, redislock.Options{OpTimeout: 5 * time.Second}); err != nil {
		panic(err)
	}
	return locker, func() {
		locker.Close()
		rdb.Close()
		server.Close()
	}
}

// A transfer needs both accounts. LockAll can't deadlock with a transfer in the other direction.
func ExampleAll() {
	locker, end := newLocker()
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	both, err := lock.LockAll(ctx, locker, "account/2", "account/1")
	if err != nil {
		panic(err)
	}
	for _, held := range both.Locks() {
		fmt.Println(held.Name())
	}
	_, err = lock.TryLockAll(ctx, locker, "account/1", "account/3") // another transfer
	fmt.Println("another has account/1:", errors.Is(err, lock.ErrHeld))

	under, done := lock.Context(ctx, both) // ends when one of the locks is lost
	defer done()
	err = lock.Do(under, locker, "account/1", func(context.Context, lock.Lock) error {
		fmt.Println("a function that locks account/1 itself")
		return nil
	})
	fmt.Println(err, both.Unlock(ctx))
	// Output:
	// account/1
	// account/2
	// another has account/1: true
	// a function that locks account/1 itself
	// <nil> <nil>
}

// Between two steps a long job checks whether it still holds its lock. Another process that has the
// token can continue the job.
func ExampleContinuer() {
	locker, end := newLocker()
	defer end()
	ctx := context.Background()
	first, err := locker.Lock(ctx, "nightly report")
	if err != nil {
		panic(err)
	}
	select {
	case <-first.Lost():
		return // another process continues the job
	default:
		fmt.Println("held:", first.Err() == nil, time.Until(first.Until()) > 0)
	}

	resume := func(locker lock.Continuer, token int64) { // in another process
		held, err := locker.Continue(ctx, "nightly report", token)
		if err != nil {
			panic(err)
		}
		fmt.Println("larger:", held.Token() > token)
		fmt.Println("given back:", held.Unlock(ctx))
		fmt.Println("not held any more:", errors.Is(held.Err(), lock.ErrNotHeld))
	}
	resume(locker, first.Token())
	fmt.Println("lost:", errors.Is(first.Unlock(ctx), lock.ErrLost))
	// Output:
	// held: true true
	// larger: true
	// given back: <nil>
	// not held any more: true
	// lost: true
}

// An operator knows that the holder hangs and can't be ended.
func ExampleSeizer() {
	locker, end := newLocker()
	defer end()
	ctx := context.Background()
	hangs, err := locker.Lock(ctx, "invoices")
	if err != nil {
		panic(err)
	}

	seize := func(locker lock.Seizer) error {
		held, err := locker.SeizeUnsafely(ctx, "invoices")
		if err != nil {
			return err
		}
		return held.Unlock(ctx)
	}
	fmt.Println(seize(locker))
	fmt.Println(errors.Is(hangs.Unlock(ctx), lock.ErrLost))
	// Output:
	// <nil>
	// true
}

// A name is part of a key, so check a name that users choose. A skipped turn is no failure, because
// the holder of the lock does the work. Close the locker when the program stops.
func ExampleLocker() {
	locker, end := newLocker()
	ctx := context.Background()
	turn := func(locker lock.Locker, name string) string {
		if len(name) > lock.MaxName {
			return "the name is too long"
		}
		held, err := locker.TryLock(ctx, name)
		switch {
		case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrClosed):
			return "not my turn"
		case err != nil:
			return err.Error()
		}
		defer func() { _ = held.Unlock(ctx) }()
		return "done"
	}
	fmt.Println(turn(locker, "import/red"))
	fmt.Println(turn(locker, strings.Repeat("x", 10_000)))
	end()
	fmt.Println(turn(locker, "import/red"))
	// Output:
	// done
	// the name is too long
	// not my turn
}
