package redislock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// patience is the time limit for events that must happen. It is enough for a busy machine.
const patience = 30 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client returns a client of one server. It is closed at the end of the test.
func client(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// locker returns the locker of a process, after Warm.
func locker(t *testing.T, addr string, opts redislock.Options) *redislock.Locker {
	t.Helper()
	l := open(t, client(t, addr), opts)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, l.Warm(ctx))
	return l
}

func locked(t *testing.T, l lock.Locker, name string) lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	held, err := l.Lock(ctx, name)
	must(t, err)
	return held
}

func unlock(t *testing.T, held lock.Lock) {
	t.Helper()
	must(t, held.Unlock(context.Background()))
}

// call is a running call of Lock.
type call struct {
	held lock.Lock
	err  error
	done chan struct{}
}

// calls calls Lock on a new goroutine.
func calls(ctx context.Context, l lock.Locker, name string) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.held, c.err = l.Lock(ctx, name)
	}()
	return c
}

// lock returns the lock that the call returned.
func (c *call) lock(t *testing.T) lock.Lock {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatalf("Lock doesn't return")
	}
	must(t, c.err)
	return c.held
}

func (c *call) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// line waits until n calls wait for the lock, and returns their owners in order.
func line(t *testing.T, rdb redis.UniversalClient, prefix, name string, n int) (owners []string) {
	t.Helper()
	waittest.Until(t, "they stand in line", func() bool {
		owners = rdb.ZRange(context.Background(), redislock.LineName(prefix, name), 0, -1).Val()
		return len(owners) == n
	})

	return owners
}
