package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// 100 waiting calls get the lock in the order in which they came, even if they belong to several
// processes, and even if a new call asks at the moment when the lock is free.
func TestFairOrder(t *testing.T) {
	const prefix, name, waiting = "fair", "n", 100
	addr := redistest.Shared(t).Addr()
	opts := redislock.Options{Prefix: prefix, Fair: true, Lease: time.Minute}
	lockers := []*redislock.Locker{
		locker(t, addr, opts), locker(t, addr, opts), locker(t, addr, opts), locker(t, addr, opts),
	}
	rdb := client(t, addr)
	first := locked(t, lockers[0], name)

	var mu sync.Mutex // guards order
	var order []int
	var all sync.WaitGroup
	for i := range waiting {
		c := calls(t.Context(), lockers[i%len(lockers)], name)
		all.Go(func() {
			<-c.done
			if c.err != nil {
				t.Error(c.err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if held, err := lockers[(i+1)%len(lockers)].TryLock(t.Context(), name); !errors.Is(err,
				lock.ErrHeld) {
				t.Errorf("a newcomer has %v, %v", held, err)
			}
			if err := c.held.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		})
		line(t, rdb, prefix, name, i+1)
	}
	unlock(t, first)
	all.Wait()
	for i, who := range order {
		if i != who {
			t.Fatalf("in the order of their calls they got it: %v", order)
		}
	}
	if len(order) != waiting {
		t.Errorf("%d of %d got it", len(order), waiting)
	}
}

// Waiting calls send their requests from time to time, and keep their places.
func TestPlacesAreKept(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, waiting, lease = "places", "n", 5, 6 * time.Second
	addr := redistest.Start(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	opts := redislock.Options{Prefix: prefix, Fair: true, Lease: lease, OpTimeout: lease}
	first := locked(t, locker(t, addr, opts), name)
	l := locker(t, proxy.Addr(), opts)
	var all []*call
	for i := range waiting {
		all = append(all, calls(t.Context(), l, name))
		line(t, client(t, addr), prefix, name, i+1)
	}
	before := line(t, client(t, addr), prefix, name, waiting)
	proxy.ResetCounts()
	waittest.Until(t, "each has asked again", func() bool {
		return proxy.Counts()["EVALSHA"] >= 3*waiting
	})
	if after := line(t, client(t, addr), prefix, name, waiting); !slices.Equal(before, after) {
		t.Errorf("the line was %q and is %q", before, after)
	}
	unlock(t, first)
	for _, c := range all {
		unlock(t, c.lock(t))
	}
}

// A lock that is given back goes to a waiting call, not to a new call. If a lock ends in another
// way, a new call can get it, unless Fair is set. Waiting calls keep their places.
func TestNewcomer(t *testing.T) {
	for _, fair := range []bool{true, false} {
		t.Run(fmt.Sprint(fair), func(t *testing.T) {
			const prefix, name = "newcomer", "n"
			addr := redistest.Shared(t).Addr()
			rdb := client(t, addr)
			opts := redislock.Options{Prefix: prefix, Fair: fair, Lease: time.Minute}
			a, b, c := locker(t, addr, opts), locker(t, addr, opts), locker(t, addr, opts)
			held := locked(t, a, name)
			waits := calls(t.Context(), b, name)
			line(t, rdb, prefix, name, 1)
			later := calls(t.Context(), a, name)
			line(t, rdb, prefix, name, 2)
			unlock(t, held)
			if held, err := c.TryLock(t.Context(), name); !errors.Is(err, lock.ErrHeld) {
				t.Fatalf("the newcomer got %v, %v before one that waits", held, err)
			}
			held = waits.lock(t)

			before := line(t, rdb, prefix, name, 1)
			must(t, rdb.Del(t.Context(), redislock.LockName(prefix, name)).Err())
			newcomer, err := c.TryLock(t.Context(), name)
			switch {
			case fair && !errors.Is(err, lock.ErrHeld):
				t.Fatalf("the newcomer got %v, %v before one that waits", newcomer, err)
			case !fair && err != nil:
				t.Fatalf("the lock is free and the newcomer got %v", err)
			case !fair:
				if after := line(t, rdb, prefix, name, 1); !slices.Equal(before, after) {
					t.Errorf("the line was %q and is %q", before, after)
				}
				unlock(t, newcomer)
			}
			unlock(t, later.lock(t))
			if err := held.Unlock(context.Background()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("what was taken away was given back: %v", err)
			}
		})
	}
}

// ownWire returns a locker whose messages come over a separate connection.
func ownWire(
	t *testing.T, addr string, opts redislock.Options,
) (*redislock.Locker, *redistest.Proxy) {
	t.Helper()
	wire := redistest.StartProxy(t, addr)
	l := open(t, separate{client(t, addr), client(t, wire.Addr())}, opts)
	must(t, l.Warm(t.Context()))
	return l, wire
}

// If a waiting call leaves just after it was given the lock, and doesn't know that yet, it passes
// the lock on to the next call.
func TestLeavingPassesOn(t *testing.T) {
	for _, fair := range []bool{true, false} {
		t.Run(fmt.Sprint(fair), func(t *testing.T) {
			const prefix, name = "leaving", "n"
			addr := redistest.Shared(t).Addr()
			rdb := client(t, addr)
			opts := redislock.Options{Prefix: prefix, Fair: fair, Lease: time.Hour}
			a, c := locker(t, addr, opts), locker(t, addr, opts)
			b, wire := ownWire(t, addr, opts)
			held := locked(t, a, name)
			ctx, cancel := context.WithCancel(t.Context())
			leaves := calls(ctx, b, name)
			line(t, rdb, prefix, name, 1)
			stays := calls(t.Context(), c, name)
			line(t, rdb, prefix, name, 2)

			wire.Blackhole(true)
			defer wire.Blackhole(false)
			unlock(t, held)
			line(t, rdb, prefix, name, 1)
			cancel()
			<-leaves.done
			if leaves.err == nil {
				// It noticed that messages don't arrive, and asked, just before it left.
				unlock(t, leaves.held)
			} else if !errors.Is(leaves.err, context.Canceled) {
				t.Errorf("it left with %v", leaves.err)
			}
			unlock(t, stays.lock(t))
			if n := rdb.ZCard(t.Context(), redislock.LineName(prefix, name)).Val(); n != 0 {
				t.Errorf("%d stand in line for a lock that nobody wants", n)
			}
		})
	}
}

// If a call was given the lock but got no message, it learns of the lock when it sends its request
// again.
func TestGivenAndNotHeard(t *testing.T) {
	const prefix, name, lease = "notheard", "n", 12 * time.Second
	addr := redistest.Shared(t).Addr()
	opts := redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease}
	a := locker(t, addr, opts)
	b, wire := ownWire(t, addr, opts)
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, client(t, addr), prefix, name, 1)
	wire.Blackhole(true)
	defer wire.Blackhole(false)
	unlock(t, held)
	owner := client(t, addr).Get(t.Context(), redislock.LockName(prefix, name)).Val()
	next := waits.lock(t)
	if now := client(t, addr).Get(t.Context(),
		redislock.LockName(prefix, name)).Val(); now != owner {
		t.Errorf("it was given as %q and is held as %q", owner, now)
	}
	unlock(t, next)
}

// If a call learns too late that it was given the lock, it doesn't treat the lock as held, because
// other holders have had it since.
func TestHeardTooLate(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease = "toolate", "n", 6 * time.Second
	addr := redistest.Start(t).Addr()
	opts := redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease}
	a := locker(t, addr, opts)
	commands, messages := redistest.StartProxy(t, addr), redistest.StartProxy(t, addr)
	b := open(t, separate{client(t, commands.Addr()), client(t, messages.Addr())}, opts)
	must(t, b.Warm(t.Context()))
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, client(t, addr), prefix, name, 1)
	waittest.Until(t, "the reply to the call in line", commands.Idle)
	began := time.Now()
	commands.Blackhole(true) // to Redis the process looks stopped
	messages.Blackhole(true)
	unlock(t, held)
	other := locked(t, a, name) // after the lease of the call that was given the lock
	wallclock.CatchUp(began)
	messages.Blackhole(false)
	commands.Blackhole(false)
	if waits.returned() && waits.err == nil && waits.held.Err() == nil && other.Err() == nil {
		t.Error("two have it")
	}
	unlock(t, other)
	next := waits.lock(t)
	if next.Token() <= other.Token() {
		t.Errorf("token %d follows %d", next.Token(), other.Token())
	}
	unlock(t, next)
}

// Waiting calls whose process is gone delay no other call. But if Fair keeps the order, they delay
// others by one Lease at most.
func TestWaiterIsGone(t *testing.T) {
	for _, fair := range []bool{true, false} {
		t.Run(fmt.Sprint(fair), func(t *testing.T) {
			const prefix, name = "gone", "n"
			addr := redistest.Shared(t).Addr()
			lease := time.Hour
			if fair {
				lease = 6 * time.Second
			}
			opts := redislock.Options{
				Prefix: prefix, Fair: fair, Lease: lease, OpTimeout: 2 * time.Second,
			}
			proxy := redistest.StartProxy(t, addr)
			a, b, c := locker(t, addr, opts), locker(t, proxy.Addr(), opts), locker(t, addr, opts)
			held := locked(t, a, name)
			calls(t.Context(), b, name)
			calls(t.Context(), b, name)
			line(t, client(t, addr), prefix, name, 2)
			must(t, proxy.Refuse(true))
			proxy.Cut() // as if the process died: the server knows that it no longer listens
			waits := calls(t.Context(), c, name)
			if !fair {
				line(t, client(t, addr), prefix, name, 3)
			}
			unlock(t, held)
			began := time.Now()
			unlock(t, waits.lock(t))
			t.Logf("after %v", time.Since(began))
		})
	}
}
