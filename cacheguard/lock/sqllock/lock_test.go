package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func TestLockUnlock(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a, b := s.process(t), s.process(t)
		held := mustLock(t, a, "n")
		wantHeld(t, b, "n")
		wantHeld(t, a, "n")
		mustUnlock(t, held)
		next := mustTry(t, b, "n")
		if next.Token() <= held.Token() || held.Token() <= 0 {
			t.Errorf("tokens %d, then %d", held.Token(), next.Token())
		}
		mustUnlock(t, next)
	})
}

// A waiting call of another process can't be told of the release, so it polls.
func TestWaiterPolls(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a, b := s.process(t), s.process(t)
		held := mustLock(t, a, "n")
		got := waiter(t, b, "n")
		mustUnlock(t, held)
		mustUnlock(t, waittest.Next(t, "the waiter", got))
	})
}

// waiter makes a locker wait for a name, and returns as soon as it waits. The call may wait longer
// than one event may take, because many calls may have their turns before it.
func waiter(t *testing.T, l *sqllock.Locker, name string) <-chan lock.Lock {
	t.Helper()
	got := make(chan lock.Lock, 1)
	before := l.Waiting(name)
	go func() {
		held, err := l.Lock(within(t, 10*patience), name)
		if err != nil {
			t.Error(err)
			return
		}
		got <- held
	}()
	waittest.Until(t, "a waiter of "+name, func() bool {
		if len(got) > 0 {
			t.Fatalf("a call had %s, and nobody saw it wait", name)
		}
		return l.Waiting(name) > before
	})
	return got
}

func TestLockIsRenewedUntilItMayNotBeHeldAnyLonger(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		const most = lease + lease/2
		a := s.process(t, func(o *sqllock.Options) { o.MaxHold = most })
		b := s.process(t)
		held := mustLock(t, a, "n")
		began := time.Now()
		next := mustLock(t, b, "n")
		if took := time.Since(began); took < most {
			t.Errorf("another had it after %v", took)
		}
		waittest.Next(t, "Lost", held.Lost())
		if err := held.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Err: %v", err)
		}
		if err := held.Unlock(soon(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		if err := next.Err(); err != nil { // the Unlock of another holder doesn't change this lock
			t.Error(err)
		}
		wantHeld(t, a, "n")
		mustUnlock(t, next)
	})
}

func TestReentrant(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t)
		err := lock.Do(soon(t), l, "n", func(ctx context.Context, held lock.Lock) error {
			return lock.Do(ctx, l, "n", func(_ context.Context, again lock.Lock) error {
				if held.Token() != again.Token() {
					t.Errorf("tokens %d and %d", held.Token(), again.Token())
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, mustTry(t, l, "n"))
	})
}

func TestWrongNamesAndContexts(t *testing.T) {
	s := onSQLite(t)
	l := s.process(t)
	for _, name := range []string{"", strings.Repeat("n", lock.MaxName+1)} {
		if _, err := l.Lock(soon(t), name); err == nil {
			t.Errorf("a name of %d bytes has a lock", len(name))
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.TryLock(ended, "n"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	_ = l.Close()
	if _, err := l.Lock(soon(t), "n"); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseEndsWaitsAndLocks(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a, b := s.process(t), s.process(t)
		held := mustLock(t, a, "n")
		got := make(chan error)
		for range 3 {
			go func() {
				_, err := b.Lock(soon(t), "n")
				got <- err
			}()
		}
		_ = b.Close()
		for range 3 {
			if err := waittest.Next(t, "the waiters", got); !errors.Is(err, lock.ErrClosed) {
				t.Errorf("a waiter: %v", err)
			}
		}
		_ = a.Close()
		waittest.Next(t, "Lost", held.Lost())
	})
}

// Prefixes keep names apart in one table.
func TestPrefixes(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a := s.process(t, func(o *sqllock.Options) { o.Prefix = "a:" })
		b := s.process(t, func(o *sqllock.Options) { o.Prefix = "b:" })
		none := s.process(t)
		held := mustTry(t, a, "n")
		mustUnlock(t, mustTry(t, b, "n"))
		wantHeld(t, none, "a:n")
		mustUnlock(t, held)
	})
}
