package sqllock_test

import (
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// In a bubble of synctest the year is 2000, so the clock of this process is 26 years late, and it
// doesn't advance. The process gets locks like any other process, because only the database's clock
// matters.
func TestClockOfTheClientDoesNotMatter(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		// Outside of the bubble the time is the real time.
		type asked struct {
			held lock.Lock
			err  error
		}
		var (
			now    = s.process(t)
			tries  = make(chan struct{})
			told   = make(chan asked)
			answer = func() asked { tries <- struct{}{}; return <-told }
		)
		go func() {
			for range tries {
				held, err := now.TryLock(soon(t), "n")
				told <- asked{held, err}
			}
		}()
		defer close(tries)

		synctest.Test(t, func(t *testing.T) {
			if time.Now().Year() != 2000 {
				t.Fatalf("in the bubble it is %v", time.Now())
			}
			_, db := s.spied(t)
			defer db.Close()
			// In the bubble no time passes, so this locker doesn't renew its lock.
			then := s.locker(t, db, seldom)
			defer then.Close()

			held := mustTry(t, then, "n")
			if a := answer(); a.err == nil {
				t.Fatal("its lock is over at once")
			}
			mustUnlock(t, held)
			a := answer()
			if a.err != nil {
				t.Fatal(a.err)
			}
			wantHeld(t, then, "n")
			if a.held.Token() <= held.Token() {
				t.Errorf("tokens %d, then %d", held.Token(), a.held.Token())
			}
		})
	})
}

// No time of day is sent to the database, only durations of locks.
func TestOnlyDurationsAreSent(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		spy, db := s.spied(t)
		l := s.locker(t, db, seldom) // a renewal would bring the expired lock back
		held := mustLock(t, l, "n")
		wantHeld(t, l, "n")
		s.expire(t, "n")
		mustUnlock(t, mustLock(t, l, "n"))
		_ = held.Unlock(soon(t))
		statements := spy.statements()
		if len(statements) < 4 {
			t.Fatalf("%d statements", len(statements))
		}
		for _, statement := range statements {
			for _, arg := range statement.args {
				switch v := arg.Value.(type) {
				case []byte, string: // names, owners, channels
				case int64:
					if v > int64(time.Hour/time.Microsecond) {
						t.Errorf("%d is sent with %s", v, statement.query)
					}
				case driver.Value:
					t.Errorf("%v is sent with %s", v, statement.query)
				}
			}
		}
	})
}

// The database's clock decides, whatever time it shows.
func TestClockOfTheDatabaseDecides(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		// A renewal by a would bring the expired lock back.
		a, b := s.process(t, seldom), s.process(t)
		_ = mustLock(t, a, "n")
		wantHeld(t, b, "n")
		s.expire(t, "n")
		mustUnlock(t, mustTry(t, b, "n"))
	})
}

// After the database's clock was set back, an earlier lock seems to be from the future. The next
// lock still has a larger token.
func TestTokensGrowWhenTheClockIsSetBack(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t)
		mustUnlock(t, mustLock(t, l, "n"))
		s.do(t, "UPDATE LOCKS SET token = token + 1000000000")
		var tokens []int64
		for range 3 {
			held := mustLock(t, l, "n")
			tokens = append(tokens, held.Token())
			mustUnlock(t, held)
		}
		var before int64
		for _, token := range tokens {
			if token <= before || token < time.Now().UnixMicro()+100000000 {
				t.Errorf("tokens %v", tokens)
			}
			before = token
		}
	})
}

// Between the request and the decision a statement may wait for another transaction that is about
// to commit its lock. The clock at the time of the decision counts, both for the lease that has
// ended by then and for the new lease.
func TestClockIsReadWhenItIsDecided(t *testing.T) {
	const short = 300 * time.Millisecond
	s := onPostgreSQL(t)
	const long = 10 * time.Second
	l := s.process(t, func(o *sqllock.Options) { o.Lease = long })
	mustUnlock(t, mustLock(t, l, "n"))
	tx, err := s.db(t).BeginTx(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	_, err = tx.Exec("UPDATE " + s.Table +
		" SET owner = 'x', expires = clock_timestamp() + interval '300 milliseconds' WHERE name = 'n'")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan lock.Lock, 1)
	go func() {
		held, err := l.TryLock(soon(t), "n")
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		got <- held
	}()
	db := s.db(t)
	waittest.Until(t, "one who waits for the row", func() (waits bool) {
		err := db.QueryRow(
			"SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'",
			s.Table).Scan(&waits)
		if err != nil {
			t.Error(err)
		}
		return waits || err != nil
	})

	wallclock.Pass(short + time.Second/10)
	// On a busy machine any time may pass between the decision and the last query. So the new lease
	// is counted from a time that is before the decision, but well after the request.
	var before, expires time.Time
	if err := db.QueryRow("SELECT clock_timestamp()").Scan(&before); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	held := waittest.Next(t, "the lock", got)
	if held == nil {
		return
	}
	if err := db.QueryRow("SELECT expires FROM " + s.Table +
		" WHERE name = 'n'").Scan(&expires); err != nil {
		t.Fatal(err)
	}
	if lasts := expires.Sub(before); lasts < long { // a lease is longer by a hundredth
		t.Errorf("it ends %v after a time before the decision", lasts)
	}
	mustUnlock(t, held)
}
