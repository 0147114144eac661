package sqllock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// The waiting calls of a process together send as many requests as one call, whatever their number.
func TestOnlyTheFirstOfALineAsks(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		const waiters = 100
		spy, db := s.spied(t)
		l := s.locker(t, db, func(o *sqllock.Options) { o.Lease = time.Minute })
		held := mustLock(t, s.process(t), "n")
		first := waiter(t, l, "n")
		began := time.Now()
		got := []<-chan lock.Lock{first}
		spy.statements()
		for range waiters - 1 {
			got = append(got, waiter(t, l, "n"))
		}
		// The first call asks after 5, 10, 20 ms and so on, up to 250 ms. Each pause may be a
		// little shorter at random. The other calls don't ask.
		most := 8 + int(time.Since(began)/(125*time.Millisecond))
		if asked := spy.count("SELECT"); asked > most {
			t.Errorf("%d waiters asked %d times within %v, want no more than %d", waiters, asked,
				time.Since(began), most)
		}

		// The calls get the lock one after another, in the order in which they came.
		spy.statements()
		mustUnlock(t, held)
		for _, next := range got {
			mustUnlock(t, waittest.Next(t, "the next one", next))
		}
		// Each call asks when its turn comes, and gives the lock back. In between some requests
		// fail, because this process sometimes has to leave the lock to other processes.
		t.Logf("%d statements for %d waiters", len(spy.statements()), waiters)
	})
}

// A release wakes the waiting calls of its own process at once.
func TestUnlockWakesTheWaiterOfTheSameProcess(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t, seldom)
		l.SleepFirst(time.Minute)
		held := mustLock(t, l, "n")
		got := waiter(t, l, "n")
		began := time.Now()
		mustUnlock(t, held)
		mustUnlock(t, waittest.Next(t, "the waiter", got))
		if took := time.Since(began); took > seldomAsked {
			t.Errorf("it had the lock after %v", took)
		}
	})
}

// seldomAsked is shorter than the first sleep of a waiting call after seldom and
// SleepFirst(time.Minute), which is half a minute or more.
const seldomAsked = 15 * time.Second

// If a waiting call leaves, the next call gets its turn.
func TestWaiterLeaves(t *testing.T) {
	s := onSQLite(t)
	l := s.process(t)
	held := mustLock(t, l, "n")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := l.Lock(ctx, "n")
		left <- err
	}()
	waittest.Until(t, "the first waiter", func() bool { return l.Waiting("n") == 1 })
	next := waiter(t, l, "n")
	cancel()
	if err := waittest.Next(t, "the first waiter", left); !errors.Is(err, context.Canceled) {
		t.Errorf("the first waiter: %v", err)
	}
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the next one", next))
	if n := l.Waiting("n"); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// A process that locks again and again doesn't starve another process, even if that process can't
// be told of releases.
func TestWaiterOfAnotherProcessIsNotStarved(t *testing.T) {
	s := onSQLite(t)
	busy, other := s.process(t), s.process(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var turns atomic.Int64 // of the busy process
	for range 3 {
		work.Go(func() {
			for ctx.Err() == nil {
				if held, err := busy.Lock(ctx, "n"); err == nil {
					turns.Add(1)
					<-time.After(moment)
					_ = held.Unlock(t.Context())
				}
			}
		})
	}
	waittest.Until(t, "a line", func() bool { return busy.Waiting("n") > 0 })
	before := turns.Load()
	held := mustLock(t, other, "n")
	// Turns are counted, not seconds, because a busy machine needs long for each turn.
	if n := turns.Load() - before; n > 200 {
		t.Errorf("the other process had the lock after %d turns of the busy one", n)
	} else {
		t.Logf("the other process had the lock after %d turns of the busy one", n)
	}
	cancel()
	mustUnlock(t, held)
	work.Wait()
}

// The holder dies while another call waits, so its lock ends with its lease. The waiting call asks
// at that time, however seldom it asks otherwise.
func TestWaiterAsksWhenTheLeaseIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a := s.process(t, func(o *sqllock.Options) { o.Lease = 5 * time.Second })
		b := s.process(t, func(o *sqllock.Options) { o.Poll = time.Hour })
		b.SleepFirst(time.Hour)
		held := mustLock(t, a, "n")
		got := waiter(t, b, "n")
		_ = a.Close() // nobody renews the lock any more, and its row stays
		next := waittest.Next(t, "the waiter", got)
		if late := time.Since(held.Until()); late < 0 {
			t.Errorf("it had the lock %v before the end of the lease", -late)
		} else {
			t.Logf("it had the lock %v after the end of the lease", late)
		}
		mustUnlock(t, next)
	})
}
