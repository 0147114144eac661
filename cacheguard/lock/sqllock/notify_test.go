package sqllock_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/logtest"
	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// seldom makes waiting calls poll so seldom that a call which isn't woken gets the lock late.
func seldom(o *sqllock.Options) { o.Lease, o.Poll = time.Minute, time.Minute }

// hears returns the locker of a process whose waiting calls are woken only by notifications: within
// the time of a test they don't poll.
func (s system) hears(t *testing.T) *sqllock.Locker {
	t.Helper()
	return s.hearsWith(t, s.db(t), listen(s.Source))
}

func (s system) hearsWith(t *testing.T, db *sql.DB, how sqllock.Listen) *sqllock.Locker {
	t.Helper()
	l := s.locker(t, db, seldom, func(o *sqllock.Options) { o.Listen = how })
	l.SleepDeep(time.Minute)
	return l
}

// wanted waits until the release of a name will send a notification.
func (s system) wanted(t *testing.T, name string) {
	t.Helper()
	db := s.db(t)
	waittest.Until(t, "a wish for a notification of "+name, func() (is bool) {
		err := db.QueryRowContext(soon(t), "SELECT wanted FROM "+s.Table+" WHERE name = $1",
			[]byte(name)).Scan(&is)
		if err != nil {
			t.Error(err)
			return true
		}
		return is
	})

}

func TestNotificationWakesTheWaiter(t *testing.T) {
	s := onPostgreSQL(t)
	a, b := s.process(t, seldom), s.hears(t)
	for range 20 {
		held := mustLock(t, a, "n")
		got := waiter(t, b, "n")
		s.wanted(t, "n")
		began := time.Now()
		if err := held.Unlock(soon(t)); err != nil {
			t.Fatal(err)
		}
		next := waittest.Next(t, "the waiter", got)
		// Without a notification the waiter asks after half a minute or more.
		if took := time.Since(began); took > 15*time.Second {
			t.Fatalf("from Unlock to Lock in another process: %v", took)
		}
		mustUnlock(t, next)
	}
}

// A notification wakes only the calls that wait for its lock.
func TestNotificationWakesNobodyElse(t *testing.T) {
	s := onPostgreSQL(t)
	a := s.process(t, seldom)
	spy, db := s.spied(t)
	listens := make(chan struct{})
	begins := sync.OnceFunc(func() { close(listens) })
	b := s.hearsWith(t, db, func(
		ctx context.Context, channel string, standing func(), heard func(string),
	) error {
		return listen(s.Source)(ctx, channel, func() {
			standing() // standing makes all waiting calls ask again
			begins()
		}, heard)
	})
	first := mustLock(t, a, "first")
	got := waiter(t, b, "first") // notifications arrive after the first call waits
	waittest.Next(t, "notifications", listens)
	mustUnlock(t, first)
	mustUnlock(t, waittest.Next(t, "the first waiter", got))

	x, y := mustLock(t, a, "x"), mustLock(t, a, "y")
	gotX, gotY := waiter(t, b, "x"), waiter(t, b, "y")
	s.wanted(t, "x")
	s.wanted(t, "y")
	spy.statements()
	mustUnlock(t, x)
	mustUnlock(t, waittest.Next(t, "the waiter", gotX))
	<-time.After(moment) // in this time no call asks for the other lock
	asked := 0
	for _, statement := range spy.statements() {
		if string(statement.args[0].Value.([]byte)) == "y" {
			asked++
		}
	}
	if asked > 0 {
		t.Errorf("the waiter for another lock asked %d times", asked)
	}
	mustUnlock(t, y)
	mustUnlock(t, waittest.Next(t, "the other waiter", gotY))
}

// PostgreSQL commits transactions with notifications one after another. So a release sends a
// notification only if a call waits.
func TestReleaseWithoutWaitersTellsNobody(t *testing.T) {
	s := onPostgreSQL(t)
	a, b := s.process(t), s.hears(t)
	var (
		mu   sync.Mutex
		told []string
	)
	ctx, cancel := context.WithCancel(t.Context())
	standing, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- listen(s.Source)(ctx, s.Table, func() { close(standing) }, func(payload string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, payload)
		})
	}()
	waittest.Next(t, "LISTEN", standing)
	for range 5 {
		mustUnlock(t, mustLock(t, a, "quiet"))
	}
	held := mustLock(t, a, "wanted")
	got := waiter(t, b, "wanted")
	s.wanted(t, "wanted")
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the waiter", got))
	mustUnlock(t, mustLock(t, a, "wanted")) // the lock is no longer wanted
	held = mustLock(t, a, "last")
	got = waiter(t, b, "last")
	s.wanted(t, "last")
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the waiter", got))

	want := []string{hex.EncodeToString([]byte("wanted")), hex.EncodeToString([]byte("last"))}
	waittest.Until(t, "the last notification", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(told, want[1])
	})

	cancel()
	if err := waittest.Next(t, "the end of listening", ended); err != nil {
		t.Error(err)
	}
	if !slices.Equal(told, want) {
		t.Errorf("told: %q, want %q", told, want)
	}
}

// Waiting calls miss a release before notifications arrive. So they ask again when notifications
// begin to arrive.
func TestWaiterLooksAgainWhenNotificationsArrive(t *testing.T) {
	s := onPostgreSQL(t)
	a := s.process(t, seldom)
	stand := make(chan struct{})
	b := s.process(t, seldom, func(o *sqllock.Options) {
		o.Listen = func(
			ctx context.Context, channel string, standing func(), heard func(string),
		) error {
			return listen(s.Source)(ctx, channel, func() {
				select {
				case <-stand:
					standing()
				case <-ctx.Done():
				}
			}, heard)
		}
	})
	b.SleepFirst(time.Minute)
	held := mustLock(t, a, "n")
	got := waiter(t, b, "n")
	mustUnlock(t, held)
	began := time.Now()
	close(stand)
	mustUnlock(t, waittest.Next(t, "the waiter", got))
	if took := time.Since(began); took > seldomAsked {
		t.Errorf("it looked again after %v", took)
	}
	if !b.Hears() {
		t.Error("notifications don't arrive")
	}
}

// While notifications don't arrive, waiting calls poll. The log has one line when this begins, and
// one when it ends.
func TestWaitersPollWhileNotificationsDoNotArrive(t *testing.T) {
	s := onPostgreSQL(t)
	a := s.process(t, seldom) // its lock must not be lost on a busy machine
	var log logtest.Lines
	broken := make(chan struct{})
	var tries sync.WaitGroup
	tries.Add(3)
	n := 0
	b := s.process(t, func(o *sqllock.Options) {
		o.Logger = log.Logger()
		o.Listen = func(
			ctx context.Context, channel string, standing func(), heard func(string),
		) error {
			if n++; n <= 3 {
				tries.Done()
				return errors.New("out of order")
			}
			select {
			case <-broken:
			case <-ctx.Done():
				return nil
			}
			return listen(s.Source)(ctx, channel, standing, heard)
		}
	})
	held := mustLock(t, a, "n")
	got := waiter(t, b, "n")
	tries.Wait()
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the waiter", got))
	if n := log.Count("out of order"); n != 1 {
		t.Errorf("it was said %d times that notifications don't arrive", n)
	}
	close(broken)
	log.Await(t, 1, "arrive again")
}

// A connection whose other end is gone stays open for hours if the client sends no query on it.
func TestHalfOpenListenerIsNoticed(t *testing.T) {
	s := onPostgreSQL(t)
	proxy := pgtest.StartProxy(t, pgtest.Shared(t).Addr())
	a := s.process(t, seldom)
	b := s.process(t, func(o *sqllock.Options) {
		o.Lease, o.Listen = time.Minute, listen(s.through(proxy).Source)
	})
	held := mustLock(t, a, "n")
	got := waiter(t, b, "n")
	waittest.Until(t, "notifications", b.Hears)
	proxy.Blackhole(true)
	waittest.Until(t, "that the silence is noticed", func() bool { return !b.Hears() })
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the waiter", got))
	proxy.Blackhole(false)
	waittest.Until(t, "notifications again", b.Hears)
}

// The reply to an acquisition is lost, and its request is sent again. By then another call already
// waits.
func TestWishOutlivesARepeatedAcquisition(t *testing.T) {
	s := onPostgreSQL(t)
	spy, db := s.spied(t)
	a, b := s.locker(t, db, seldom), s.hears(t)
	var got <-chan lock.Lock
	spy.onAfter(func(q seen) error {
		if !q.is("INSERT") || got != nil {
			return nil
		}
		got = waiter(t, b, "n")
		s.wanted(t, "n")
		return io.ErrUnexpectedEOF
	})
	held := mustTry(t, a, "n")
	mustUnlock(t, held)
	mustUnlock(t, waittest.Next(t, "the waiter, who must be told", got))
}

// When a waiting call gets its turn, the reply that it got before it joined the line is old. So it
// asks again, and requests its own notification.
func TestWaiterWhoseTurnComesAsksAnew(t *testing.T) {
	s := onPostgreSQL(t)
	a, b := s.process(t, seldom), s.hears(t)
	held := mustLock(t, a, "n")
	other := waiter(t, b, "n")
	s.wanted(t, "n")

	// Two calls ask at once, and both learn that there will be a notification.
	spy, db := s.spied(t)
	c := s.hearsWith(t, db, listen(s.Source))
	elsewhere := mustLock(t, a, "elsewhere")
	listening := waiter(t, c, "elsewhere") // notifications arrive after the first call waits
	waittest.Until(t, "notifications", c.Hears)
	mustUnlock(t, elsewhere)
	mustUnlock(t, waittest.Next(t, "the first waiter", listening))
	var asked atomic.Int32
	both := make(chan struct{})
	spy.onAfter(func(q seen) error {
		if !q.is("INSERT") || string(q.args[0].Value.([]byte)) != "n" {
			return nil
		}
		switch asked.Add(1) {
		case 1:
			<-both
		case 2:
			close(both)
			waittest.Until(t, "the first in line", func() bool { return c.Waiting("n") == 1 })
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	left, got := make(chan error), make(chan lock.Lock)
	go func() {
		_, err := c.Lock(ctx, "n")
		left <- err
	}()
	waittest.Until(t, "the first question", func() bool { return asked.Load() == 1 })
	go func() {
		held, err := c.Lock(soon(t), "n")
		if err != nil {
			t.Error(err)
		}
		got <- held
	}()
	waittest.Until(t, "both in line", func() bool { return c.Waiting("n") == 2 })

	// Then there won't be a notification, and the first call leaves.
	s.do(t, "UPDATE LOCKS SET wanted = false WHERE name = 'n'")
	cancel()
	if err := waittest.Next(t, "the first", left); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.wanted(t, "n") // the next call has asked
	mustUnlock(t, held)
	for range 2 {
		select {
		case next := <-got:
			mustUnlock(t, next)
		case next := <-other:
			mustUnlock(t, next)
		case <-time.After(patience):
			t.Fatal("still waiting for the last two")
		}
	}
}

// Several processes take turns and wake each other. No request for a notification is lost, neither
// between the look at the lock and this request, nor when the lock goes from one process to the
// next.
func TestNoWakeUpIsLost(t *testing.T) {
	s := onPostgreSQL(t)
	const processes, waiters, rounds = 3, 12, 5
	var lockers []*sqllock.Locker
	for range processes {
		lockers = append(lockers, s.hears(t))
	}
	for range rounds {
		held := mustLock(t, lockers[0], "n")
		got := make(chan struct{}, waiters)
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				held, err := lockers[i%processes].Lock(soon(t), "n")
				if err != nil {
					t.Error(err)
					return
				}
				got <- struct{}{}
				if err := held.Unlock(soon(t)); err != nil {
					t.Error(err)
				}
			})
		}
		for _, l := range lockers {
			waittest.Until(t, "waiters", func() bool {
				return l.Hears() && l.Waiting("n") == waiters/processes
			})
		}
		s.wanted(t, "n")
		mustUnlock(t, held)
		for range waiters {
			waittest.Next(t, "the next one, who must be told", got)
		}
		all.Wait()
	}
}
