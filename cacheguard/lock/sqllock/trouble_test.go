package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

func hasty(o *sqllock.Options) { o.OpTimeout = 200 * time.Millisecond }

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error doesn't say %q: %v", w, err)
		}
	}
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is taken for another: %v", err)
	}
}

// saidToHaveWaited returns the time without a reply that the text of an error names.
func saidToHaveWaited(t *testing.T, err error) time.Duration {
	t.Helper()
	_, words, _ := strings.Cut(err.Error(), "no answer within ")
	number, _, _ := strings.Cut(words, " ")
	waited, bad := time.ParseDuration(number)
	if bad != nil {
		t.Fatalf("%v: %v", err, bad)
	}
	return waited
}

func TestMissingTableIsNamed(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		s.Table = "no_such_table"
		l := s.process(t)
		_, err := l.Lock(soon(t), "n")
		wantError(t, err, "no_such_table", "Locker.Create", "Locker.Schema")
		_, err = l.TryLock(soon(t), "n")
		wantError(t, err, "no_such_table")
	})
}

func TestTableOfOthersIsNamed(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		name := fmt.Sprintf("others_%d", tables.Add(1))
		s.do(t, "CREATE TABLE "+name+" (name text PRIMARY KEY, since text)")
		s.Table = name
		_, err := s.process(t).TryLock(soon(t), "n")
		wantError(t, err, name, "Locker.Schema")
	})
}

func TestCreate(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		s.Table = "Order" // a keyword of SQL, in mixed case
		if s.Dialect == sqllock.PostgreSQL {
			schema := fmt.Sprintf("Created_%d", tables.Add(1))
			s.do(t, `CREATE SCHEMA "`+schema+`"`)
			s.Table = schema + ".Order"
		}
		made := make(chan error)
		for range 5 { // processes that start together
			l := s.process(t)
			go func() { made <- l.Create(soon(t)) }()
		}
		for range 5 {
			if err := waittest.Next(t, "Create", made); err != nil {
				t.Error(err)
			}
		}
		l := s.process(t)
		held := mustLock(t, l, "n")
		if err := l.Create(soon(t)); err != nil { // the table exists already
			t.Error(err)
		}
		wantHeld(t, s.process(t), "n")
		s.Table = `"` + strings.ReplaceAll(s.Table, ".", `"."`) + `"`
		if token := s.token(t, "n"); token != held.Token() {
			t.Errorf("the token in the table is %d, want %d", token, held.Token())
		}
		mustUnlock(t, held)
		if !strings.Contains(l.Schema(), "CREATE TABLE") {
			t.Errorf("Schema is %q", l.Schema())
		}
	})
}

// The application uses all connections of the pool. The error names this reason. A held lock is
// renewed as soon as there is a free connection.
func TestPoolIsExhausted(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		db := s.db(t)
		db.SetMaxOpenConns(1)
		l := s.locker(t, db)
		held := mustLock(t, l, "mine")
		wantHeld(t, l, "mine")
		theirs, err := db.Conn(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.locker(t, db, hasty).TryLock(soon(t), "n")
		wantError(t, err, "all 1 connections of the db are in use")
		// The last try had less time.
		if waited := saidToHaveWaited(t, err); waited < 150*time.Millisecond {
			t.Errorf("OpTimeout is 200ms: %v", err)
		}
		_ = theirs.Close()
		mustUnlock(t, mustTry(t, l, "n"))

		// A locker needs only one connection, even while a call waits.
		lost := time.After(lease + lease/5)
		waiting, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := l.Lock(waiting, "mine")
			got <- err
		}()
		<-lost
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		cancel()
		if err := waittest.Next(t, "the waiter", got); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		mustUnlock(t, held)
	})
}

// The driver doesn't notice that the time is over, but the call returns. If the driver acquires the
// lock later, the lock is given back.
func TestDriverThatLooksAtNoContext(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		spy, db := s.spied(t)
		stuck := make(chan struct{})
		spy.onBefore(func(s seen) error {
			if s.is("INSERT") {
				<-stuck
			}
			return nil
		})
		l := s.locker(t, db, seldom, hasty)
		_, err := l.TryLock(soon(t), "n")
		wantError(t, err, "no answer")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := l.Lock(ctx, "n")
			got <- err
		}()
		cancel()
		if err := waittest.Next(t, "Lock", got); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(stuck)
		other := s.process(t, seldom)
		waittest.Until(t, "that the lock is given back", func() bool {
			held, err := other.TryLock(soon(t), "n")
			return err == nil && held.Unlock(soon(t)) == nil
		})

	})
}

// Close doesn't wait for ever for a driver that ignores contexts. An Unlock after such a Close may
// send further statements.
func TestCloseWithADriverThatHangs(t *testing.T) {
	s := onSQLite(t)
	spy, db := s.spied(t)
	l := s.locker(t, db) // Lock must not give up before Close is called
	held := mustLock(t, l, "m")
	stuck := make(chan struct{})
	spy.onBefore(func(seen) error { <-stuck; return nil })
	before := spy.count("")
	got := make(chan error)
	go func() {
		_, err := l.Lock(soon(t), "n")
		got <- err
	}()
	waittest.Until(t, "the statement", func() bool { return spy.count("") > before })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = l.Close()
	}()
	waittest.Next(t, "Close", closed)
	if err := waittest.Next(t, "Lock", got); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	close(stuck)
	waittest.Until(t, "the end of the statements", func() bool { return db.Stats().InUse == 0 })
	if err := held.Unlock(soon(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock after Close: %v", err)
	}
}

// If a lock was requested before Close and granted during Close, Close gives it back.
func TestCloseGivesBackWhatIsAcquiredMeanwhile(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		spy, db := s.spied(t)
		gate := make(chan struct{})
		spy.onBefore(func(s seen) error {
			if s.is("INSERT") {
				<-gate
			}
			return nil
		})
		l := s.locker(t, db, seldom)
		got := make(chan error)
		go func() {
			_, err := l.Lock(soon(t), "n")
			got <- err
		}()
		waittest.Until(t, "the statement", func() bool { return spy.count("INSERT") > 0 })
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = l.Close()
		}()
		if err := waittest.Next(t, "Lock", got); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("Lock: %v", err)
		}
		// In this time the lock must not be given back, because it isn't granted yet.
		<-time.After(moment)
		close(gate)
		waittest.Next(t, "Close", closed)
		mustUnlock(t, mustTry(t, s.process(t, seldom), "n"))
	})
}

// Another program writes to the database. A call waits for this writer for OpTimeout.
func TestSQLiteIsBusy(t *testing.T) {
	s := onSQLite(t)
	s.Source = strings.Replace(s.Source, "busy_timeout(500)", "busy_timeout(0)", 1)
	writer, err := s.db(t).Conn(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := writer.ExecContext(soon(t), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("BEGIN IMMEDIATE")
	// A hasty locker might have no time to ask on a busy machine.
	_, err = s.process(t).TryLock(soon(t), "n")
	wantError(t, err, "locked")

	spy, db := s.spied(t)
	l := s.locker(t, db, seldom)
	got := make(chan error)
	go func() {
		held, err := l.TryLock(soon(t), "n")
		if err == nil {
			err = held.Unlock(soon(t))
		}
		got <- err
	}()
	waittest.Until(t, "some tries", func() bool { return spy.count("INSERT") > 2 })
	exec("COMMIT")
	if err := waittest.Next(t, "TryLock", got); err != nil {
		t.Error(err)
	}
}

// Without a write-ahead log a reader can prevent a writer's commit after the row was written and
// returned. A lock is acquired only when it is committed.
func TestSQLiteCannotCommit(t *testing.T) {
	file := filepath.ToSlash(filepath.Join(t.TempDir(), "locks.db"))
	s := system{
		Dialect: sqllock.SQLite,
		Source:  "file:" + file + "?_pragma=journal_mode(delete)&_pragma=busy_timeout(0)",
	}.created(t)
	s.do(t, "INSERT INTO LOCKS VALUES ('a', '', 1, 1), ('b', '', 1, 1)")
	reader, err := s.db(t).QueryContext(soon(t), "SELECT name FROM cacheguard_locks")
	if err != nil || !reader.Next() {
		t.Fatal(err)
	}
	_, err = s.process(t).TryLock(soon(t), "n")
	wantError(t, err, "locked")
	_ = reader.Close()
	other := s.process(t)
	waittest.Until(t, "that nobody has it", func() bool {
		held, err := other.TryLock(soon(t), "n")
		return err == nil && held.Unlock(soon(t)) == nil
	})

}

// A request is carried out and its reply is lost. The next request recognises what the first
// request did.
func TestLostReplies(t *testing.T) {
	s := onPostgreSQL(t)
	spy, db := s.spied(t)
	// With a short lease, a slow database would have too little time for a request.
	l := s.locker(t, db, func(o *sqllock.Options) { o.Lease = 15 * time.Second })
	other := s.process(t)
	mustUnlock(t, mustTry(t, l, "warm")) // a new connection is slow
	spy.statements()

	spy.loseReply("INSERT")
	held := mustTry(t, l, "n")
	if n := spy.count("INSERT"); n < 2 || n > 3 { // a request that is too slow is sent once more
		t.Errorf("it was asked for %d times; want it asked for again", n)
	}
	wantHeld(t, other, "n")
	var token int64
	if err := db.QueryRow("SELECT token FROM " + s.Table +
		" WHERE name = 'n'").Scan(&token); err != nil || token != held.Token() {
		t.Errorf("token %d, in the database %d, %v", held.Token(), token, err)
	}

	spy.loseReply("SET expires = clock_timestamp()")
	waittest.Until(t, "two renewals", func() bool {
		return spy.count("SET expires = clock_timestamp()") >= 2
	})
	if err := held.Err(); err != nil {
		t.Error(err)
	}

	spy.loseReply("pg_notify")
	mustUnlock(t, held)
	mustUnlock(t, mustTry(t, other, "n"))

	// Another holder gets the lock between the first and the second request to give it back. In
	// this case Unlock can't know whether the lock was held until the first request.
	held = mustTry(t, l, "n")
	var next lock.Lock
	var done atomic.Bool
	spy.onAfter(func(s seen) error {
		if s.is("pg_notify") && done.CompareAndSwap(false, true) {
			next = mustTry(t, other, "n")
			return io.ErrUnexpectedEOF
		}
		return nil
	})
	if err := held.Unlock(soon(t)); err == nil || errors.Is(err, lock.ErrLost) ||
		!errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Unlock: %v; want an error that leaves it open", err)
	}
	if err := next.Err(); err != nil {
		t.Error(err)
	}
	mustUnlock(t, next)
}

// If a copy of a request is carried out after the lock was given back, it acquires nothing.
func TestLateCopyAcquiresNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		spy, db := s.spied(t)
		l := s.locker(t, db, seldom)
		held := mustLock(t, l, "n")
		var copies []seen
		for _, statement := range spy.statements() {
			if statement.is("INSERT") {
				copies = append(copies, statement)
			}
		}
		again := func() {
			t.Helper()
			for _, c := range copies {
				args := make([]any, len(c.args))
				for i := range args {
					args[i] = c.args[i].Value
				}
				rows, err := db.QueryContext(soon(t), c.query, args...)
				if err != nil {
					t.Fatal(err)
				}
				for rows.Next() {
				}
				if err := errors.Join(rows.Err(), rows.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
		again() // while the lock is held, the copy changes nothing
		wantHeld(t, l, "n")
		if token := s.token(t, "n"); token != held.Token() {
			t.Errorf("the token has become %d, it was %d", token, held.Token())
		}
		mustUnlock(t, held)
		again()
		other := s.process(t, seldom)
		next := mustTry(t, other, "n")
		again()
		mustUnlock(t, next)
		if len(copies) != 1 {
			t.Errorf("%d copies", len(copies))
		}
	})
}

// The request of a waiting call is carried out after the call has left.
func TestAcquisitionNobodyHeardOfIsGivenBack(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		spy, db := s.spied(t)
		ctx, cancel := context.WithCancel(t.Context())
		spy.onAfter(func(s seen) error {
			if s.is("INSERT") {
				cancel()
				<-ctx.Done()
			}
			return nil
		})
		l, other := s.locker(t, db, seldom), s.process(t, seldom)
		held, err := l.Lock(ctx, "n")
		switch {
		case err == nil:
			mustUnlock(t, held) // the reply came at the same time as the end of the context
		case !errors.Is(err, context.Canceled):
			t.Fatal(err)
		}
		waittest.Until(t, "that the lock is given back", func() bool {
			held, err := other.TryLock(soon(t), "n")
			return err == nil && held.Unlock(soon(t)) == nil
		})

	})
}

func TestStolenLockIsLost(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a, b := s.process(t), s.process(t)
		held := mustLock(t, a, "n")
		s.do(t, "DELETE FROM LOCKS WHERE name = $1", []byte("n"))
		<-time.After(time.Second / 10) // a correction of the clock may set it back a little
		next := mustTry(t, b, "n")
		// SQLite's clock may show the same time.
		if s.Dialect == sqllock.PostgreSQL && next.Token() <= held.Token() {
			t.Errorf("tokens %d, then %d", held.Token(), next.Token())
		}
		waittest.Next(t, "Lost", held.Lost())
		if err := held.Unlock(soon(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		wantHeld(t, a, "n")
		mustUnlock(t, next)
	})
}

// The documentation contains these statements for ending a lock by hand.
func TestLockIsEndedByHand(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a, b := s.process(t, seldom), s.process(t)
		held := mustLock(t, a, "invoice 42")
		byHand := `UPDATE LOCKS SET owner = '', expires = 'epoch' WHERE name = 'invoice 42'`
		if s.Dialect == sqllock.SQLite {
			byHand = `UPDATE LOCKS SET owner = x'', expires = 0 WHERE name = CAST('invoice 42' AS BLOB)`
		}
		if n := s.do(t, byHand); n != 1 {
			t.Fatalf("%d locks are ended", n)
		}
		next := mustTry(t, b, "invoice 42")
		if next.Token() <= held.Token() {
			t.Errorf("tokens %d, then %d", held.Token(), next.Token())
		}
		if err := held.Unlock(soon(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		mustUnlock(t, next)
	})
}

// The lock was taken away by hand. Its holder gives it back before it learns of the loss.
func TestUnlockOfWhatIsAnothers(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		a, b := s.process(t, seldom), s.process(t)
		held := mustLock(t, a, "n")
		s.expire(t, "n")
		next := mustTry(t, b, "n")
		if err := held.Unlock(soon(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		wantHeld(t, a, "n")
		mustUnlock(t, next)
	})
}

// After a restart or a crash the server still has its locks, and dead connections cause no error.
func TestServerRestarts(t *testing.T) {
	server := pgtest.Start(t)
	s := at(t, server.Addr())
	a := s.process(t, seldom)
	b := s.process(t, func(o *sqllock.Options) { o.Lease = time.Minute })
	held := mustLock(t, a, "n")
	mustUnlock(t, mustLock(t, b, "other"))
	waiting := waiter(t, b, "n")
	var before time.Time
	for _, restart := range []func() error{
		server.Restart,
		func() error { server.Kill(); return server.Restart() },
	} {
		if err := restart(); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b, "n")
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		var expires time.Time
		if err := s.db(t).QueryRow("SELECT expires FROM " + s.Table +
			" WHERE name = 'n'").Scan(&expires); err != nil || expires.Before(before) {
			t.Errorf("it expires at %v, before at %v, %v", expires, before, err)
		}
		before = expires
	}
	mustUnlock(t, held)
	next := waittest.Next(t, "the waiter", waiting)
	if next.Token() <= held.Token() {
		t.Errorf("tokens %d, then %d", held.Token(), next.Token())
	}
	mustUnlock(t, next)
}

// If the server is back within the lease, renewals go on.
func TestLockIsRenewedAfterARestart(t *testing.T) {
	server := pgtest.Start(t)
	s := at(t, server.Addr())
	for long := lease; ; long *= 2 {
		name, began := fmt.Sprint("for ", long), time.Now()
		held := mustLock(t, s.process(t, func(o *sqllock.Options) { o.Lease = long }), name)
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > long/2 && long < 40*time.Second {
			t.Logf("tried again, for a restart took %v of a lease of %v", took, long)
			continue
		}
		other := s.process(t)
		began = time.Now()
		var err error
		var stood time.Duration // the longest time between two looks
		for last := began; err == nil && last.Sub(began) < long; {
			_, looked := other.TryLock(soon(t), name)
			if errors.Is(looked, lock.ErrHeld) {
				<-time.After(long / 20)
			} else {
				err = fmt.Errorf("after %v TryLock returned %v", time.Since(began), looked)
			}
			now := time.Now()
			stood, last = max(stood, now.Sub(last)), now
		}
		lost := held.Unlock(soon(t))
		if err == nil && lost == nil {
			return
		}
		if !errors.Is(lost, lock.ErrLost) || stood < long/5 || long > 40*time.Second {
			t.Fatalf("%v; Unlock: %v", err, lost)
		}
		// On a busy machine this process may stand still until the lease is over.
		t.Logf("tried again, for between two looks %v of a lease of %v passed", stood, long)
	}
}

// If the server is stopped, its holders lose their locks, and no other caller gets them in the
// meantime.
func TestServerStandsStill(t *testing.T) {
	server := pgtest.Start(t)
	s := at(t, server.Addr())
	a, b := s.process(t), s.process(t)
	held := mustLock(t, a, "n")
	if err := server.Pause(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("it can't be paused here")
	} else if err != nil {
		t.Fatal(err)
	}
	_, err := s.process(t, hasty).TryLock(soon(t), "n")
	wantError(t, err)
	waittest.Next(t, "Lost", held.Lost())
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	next := untilLocked(t, b, "n")
	if next.Token() <= held.Token() {
		t.Errorf("tokens %d, then %d", held.Token(), next.Token())
	}
	if err := held.Unlock(soon(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	mustUnlock(t, next)
}

// A waiting call tolerates the trouble for one lease and then gives up. All calls behind it in the
// line give up with it.
func TestWaitersGiveUpAfterALease(t *testing.T) {
	s := onPostgreSQL(t)
	proxy := pgtest.StartProxy(t, pgtest.Shared(t).Addr())
	mustLock(t, s.process(t, seldom), "n")
	l := s.through(proxy).process(t)
	mustUnlock(t, untilLocked(t, l, "warm")) // a new connection could be too slow for one request
	const waiters = 20
	got := make(chan error)
	wait := func() {
		_, err := l.Lock(soon(t), "n")
		got <- err
	}
	go wait()
	waittest.Until(t, "the first waiter", func() bool { return l.Waiting("n") == 1 })
	for range waiters - 1 {
		go wait()
	}
	waittest.Until(t, "the others", func() bool { return l.Waiting("n") == waiters })
	began := time.Now()
	proxy.Blackhole(true)
	for range waiters {
		wantError(t, waittest.Next(t, "a waiter", got), "no answer")
	}
	// OpTimeout is a lease, too, for each call that asks.
	if took := time.Since(began); took < lease || took > 5*lease {
		t.Errorf("they gave up after %v", took)
	}
	proxy.Blackhole(false)
}

// A pooled connection was left in a transaction. pgx discards it, so a lock doesn't become part of
// this transaction.
func TestTransactionLeftOpen(t *testing.T) {
	s := onPostgreSQL(t)
	db := s.db(t)
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(soon(t), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	held := mustLock(t, s.locker(t, db), "n")
	wantHeld(t, s.process(t), "n")
	mustUnlock(t, held)
}

// If a server is read-only, its error says so, and the request isn't repeated.
func TestServerIsReadOnly(t *testing.T) {
	s := onPostgreSQL(t)
	s.Source += "&default_transaction_read_only=on"
	began := time.Now()
	_, err := s.process(t).TryLock(soon(t), "n")
	wantError(t, err, "read-only")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it was tried again and again, for %v", took)
	}
}
