package sqllock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// A lease counts from before the request was sent, not from its reply. The database counts from a
// time in between. A holder that counted from the reply would still believe in its lock when
// another holder may have it.
func TestLeaseCountsFromTheQuestion(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		const lease = 12 * time.Second // the machine may be busy, and the test waits for a third
		p, db := s.spied(t)
		l := s.locker(t, db, func(o *sqllock.Options) { o.Lease = lease })
		var mu sync.Mutex // guards arrived
		var arrived time.Time
		p.onBefore(func(seen) error {
			mu.Lock()
			arrived = time.Now()
			mu.Unlock()
			<-time.After(50 * time.Millisecond) // in this time the statement is on its way
			return nil
		})
		fits := func(what string, held lock.Lock) {
			t.Helper()
			until := held.Until()
			mu.Lock()
			defer mu.Unlock()
			if most := arrived.Add(lease); until.After(most) {
				t.Errorf("%s: the lock is held for %v longer than a lease from when the database was asked",
					what, until.Sub(most))
			}
		}
		for what, acquire := range map[string]func(context.Context) (lock.Lock, error){
			"Lock": func(ctx context.Context) (lock.Lock, error) {
				return l.Lock(ctx, "n")
			},
			"TryLock": func(ctx context.Context) (lock.Lock, error) {
				return l.TryLock(ctx, "n")
			},
			"SeizeUnsafely": func(ctx context.Context) (lock.Lock, error) {
				return l.SeizeUnsafely(ctx, "n")
			},
		} {
			held, err := acquire(soon(t))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			fits(what, held)
			mustUnlock(t, held)
		}
		first := mustLock(t, l, "n")
		held, err := l.Continue(soon(t), "n", first.Token())
		if err != nil {
			t.Fatal(err)
		}
		fits("Continue", held)
		was := held.Until()
		waittest.Until(t, "it is renewed", func() bool { return held.Until().After(was) })
		fits("a renewal", held)
		mustUnlock(t, held)
	})
}

// If no caller learns that a lock was taken over, the lock is not given back. Otherwise another
// caller could have it before the previous holder learns of its loss.
func TestTakeThatFailsFreesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		p, db := s.spied(t)
		// The leases are long, because the lock must not end by itself within this test.
		over, past := s.locker(t, db, seldom, hasty), s.process(t, seldom)
		held := mustLock(t, past, "n")
		p.onAfter(func(sent seen) error {
			if sent.is("token = CASE") && !sent.is("INSERT") {
				return driver.ErrBadConn
			}
			return nil
		})
		if next, err := over.Continue(soon(t), "n", held.Token()); err == nil ||
			errors.Is(err, lock.ErrLost) {
			t.Fatalf("Continue without an answer: %v, %v", next, err)
		}
		p.onAfter(nil)
		if err := over.Close(); err != nil { // now all background work is done
			t.Fatal(err)
		}
		wantHeld(t, past, "n")
	})
}
