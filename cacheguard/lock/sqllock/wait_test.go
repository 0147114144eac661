package sqllock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// Waiters of a process cost as much as one, however many they are.
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
		// The first asks after 5, 10, 20 ms and so on up to 250, a little sooner by chance, the
		// others not at all.
		most := 8 + int(time.Since(began)/(125*time.Millisecond))
		if asked := spy.count("SELECT"); asked > most {
			t.Errorf("%d waiters asked %d times within %v, want no more than %d", waiters, asked, time.Since(began), most)
		}

		// They have it one after the other, in the order in which they came.
		spy.statements()
		mustUnlock(t, held)
		for _, next := range got {
			mustUnlock(t, await(t, next, "the next one"))
		}
		// Each of them asks when its turn comes and gives back; in between some ask in vain, for
		// releases of this process, too, must leave others a chance.
		t.Logf("%d statements for %d waiters", len(spy.statements()), waiters)
	})
}

// A process doesn't have to find out what it has done itself.
func TestUnlockWakesTheWaiterOfTheSameProcess(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		spy, db := s.spied(t)
		l := s.locker(t, db, seldom)
		held := mustLock(t, l, "n")
		got := waiter(t, l, "n")
		asksSeldom(t, spy)
		began := time.Now()
		mustUnlock(t, held)
		mustUnlock(t, await(t, got, "the waiter"))
		if took := time.Since(began); took > seldomAsked {
			t.Errorf("it had the lock after %v", took)
		}
	})
}

// seldomAsked is less than a waiter sleeps after asksSeldom.
const seldomAsked = 2 * time.Second

// asksSeldom waits until the only waiter of a process sleeps for longer than 2.5 s: it asks after
// 5, 10, 20 ms and so on, up to half of that sooner.
func asksSeldom(t *testing.T, spy *spy) {
	t.Helper()
	eventually(t, "that it asks seldom", func() bool { return spy.count("SELECT false") >= 11 })
}

// A waiter that leaves gives its turn to the next.
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
	eventually(t, "the first waiter", func() bool { return l.Waiting("n") == 1 })
	next := waiter(t, l, "n")
	cancel()
	if err := await(t, left, "the first waiter"); !errors.Is(err, context.Canceled) {
		t.Errorf("the first waiter: %v", err)
	}
	mustUnlock(t, held)
	mustUnlock(t, await(t, next, "the next one"))
	if n := l.Waiting("n"); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// A process that locks again and again does not keep another one out that can't be told of
// releases.
func TestWaiterOfAnotherProcessIsNotStarved(t *testing.T) {
	s := onSQLite(t)
	busy, other := s.process(t), s.process(t)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			for ctx.Err() == nil {
				if held, err := busy.Lock(ctx, "n"); err == nil {
					<-time.After(moment)
					_ = held.Unlock(t.Context())
				}
			}
		})
	}
	eventually(t, "a line", func() bool { return busy.Waiting("n") > 0 })
	began := time.Now()
	held := mustLock(t, other, "n")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the other process had the lock after %v", took)
	} else {
		t.Logf("the other process had the lock after %v", took)
	}
	cancel()
	mustUnlock(t, held)
	work.Wait()
}

// The holder has died: its lock is over when its lease is, and that is when the waiter asks,
// however seldom it does so otherwise.
func TestWaiterAsksWhenTheLeaseIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		const short = 500 * time.Millisecond
		dead := s.process(t, func(o *sqllock.Options) { o.Lease, o.MaxHold = short, time.Millisecond }) // it doesn't renew
		b := s.process(t, func(o *sqllock.Options) { o.Poll = time.Minute })
		began := time.Now()
		mustLock(t, dead, "n")
		mustUnlock(t, await(t, waiter(t, b, "n"), "the waiter"))
		if took := time.Since(began); took < short {
			t.Errorf("it had the lock after %v", took)
		} else {
			t.Logf("a lease of %v was over after %v", short, took)
		}
	})
}
