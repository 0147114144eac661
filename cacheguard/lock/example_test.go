package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
)

// ledger is a resource that a lock protects. It refuses a holder that comes late.
type ledger struct {
	mu      sync.Mutex // guards the fields below
	largest int64
	entries []string
}

var errLate = errors.New("a later holder has written")

func (l *ledger) write(token int64, entry string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token < l.largest {
		return errLate
	}
	l.largest = token
	l.entries = append(l.entries, entry)
	return nil
}

// Any Locker can be used. This example uses redislock on a Redis in this process.
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

	var book ledger
	ctx := context.Background()
	err = lock.Do(ctx, locker, "ledger", func(ctx context.Context, held lock.Lock) error {
		// ctx ends if the lock is lost. Use held.Token() for changes that can't be undone.
		return book.write(held.Token(), "first")
	})
	fmt.Println(err)

	// A holder is stopped, its lock ends, and another holder gets the lock. When the first holder
	// goes on, it doesn't know of its loss. So the ledger must refuse it.
	late, err := locker.Lock(ctx, "ledger")
	if err != nil {
		panic(err)
	}
	server.FlushAll()
	err = lock.Do(ctx, locker, "ledger", func(ctx context.Context, held lock.Lock) error {
		return book.write(held.Token(), "second")
	})
	fmt.Println(err)
	fmt.Println(book.write(late.Token(), "late"))
	fmt.Println(errors.Is(late.Unlock(ctx), lock.ErrLost))
	fmt.Println(book.entries)
	// Output:
	// <nil>
	// <nil>
	// a later holder has written
	// true
	// [first second]
}
