package sqllock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// rows returns the number of rows.
func (s system) rows(t *testing.T) (n int) {
	t.Helper()
	if err := s.db(t).QueryRowContext(soon(t),
		"SELECT count(*) FROM "+s.table()+" WHERE length(name) > 0").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// age makes all rows older by changing the times stored in them.
func (s system) age(t *testing.T, by time.Duration) {
	t.Helper()
	s.do(t, "UPDATE LOCKS SET token = token - $1", by.Microseconds())
	switch s.Dialect {
	case sqllock.SQLite:
		s.do(t, "UPDATE LOCKS SET expires = expires - $1 WHERE expires > 0", by.Milliseconds())
	default:
		s.do(t,
			"UPDATE LOCKS SET expires = expires - $1::bigint * interval '1 microsecond' WHERE expires > 'epoch'",
			by.Microseconds())
	}
}

// The rows of names that are used once are removed some day. The rows of names that are locked, or
// were locked lately, stay.
func TestOldRowsAreRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t, func(o *sqllock.Options) { o.Lease = 10 * time.Minute })
		// So that no locker removes rows in the background.
		if err := l.Clean(soon(t), time.Hour); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			mustUnlock(t, mustLock(t, l, fmt.Sprint("given back ", i)))
		}
		mustLock(t, l, "abandoned")
		s.expire(t, "abandoned")
		s.age(t, time.Hour+time.Minute)
		mustUnlock(t, mustLock(t, l, "young"))
		held := mustLock(t, l, "held for long")
		s.do(t, "UPDATE LOCKS SET token = token - 7200000000 WHERE name = $1",
			[]byte("held for long"))
		if n := s.rows(t); n != 8 {
			t.Fatalf("%d rows", n)
		}
		if err := l.Clean(soon(t), time.Hour); err != nil {
			t.Fatal(err)
		}
		if n := s.rows(t); n != 2 {
			t.Errorf("%d rows are left, want those of the two that are young or held", n)
		}
		wantHeld(t, s.process(t), "held for long")
		mustUnlock(t, held)

		// A process has removed rows within the last minute.
		s.age(t, -time.Hour)
		mustUnlock(t, mustLock(t, l, "another"))
		s.do(t, "UPDATE LOCKS SET token = 1 WHERE name = $1", []byte("another"))
		if err := s.process(t).Clean(soon(t), time.Hour); err != nil {
			t.Fatal(err)
		}
		if n := s.rows(t); n != 3 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// No explicit call is needed: a release removes old rows in the background.
func TestUnlockRemovesOldRows(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		past, empty := "timestamptz '2020-01-01'", "''"
		more := ", false"
		if s.Dialect == sqllock.SQLite {
			past, empty, more = "1", "x''", ""
		}
		for i := range 5 {
			s.do(t, "INSERT INTO LOCKS VALUES ($1, "+empty+", 1, "+past+more+")",
				[]byte(fmt.Sprint("old ", i)))
		}
		mustUnlock(t, mustLock(t, s.process(t), "new"))
		waittest.Until(t, "that the old rows are gone", func() bool { return s.rows(t) == 1 })
	})
}

// After the row of a name was removed, the name's next token is larger than all its earlier tokens.
func TestTokensGrowAcrossARemoval(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t)
		if err := l.Clean(soon(t), time.Hour); err != nil {
			t.Fatal(err)
		}
		held := mustLock(t, l, "n")
		mustUnlock(t, held)
		waittest.Until(t, "that the row is older than a moment", func() bool {
			s.expire(t, "")
			if err := l.Clean(soon(t), time.Nanosecond); err != nil {
				t.Fatal(err)
			}
			return s.rows(t) == 0
		})
		<-time.After(time.Second / 10) // a correction of the clock may set it back a little
		next := mustLock(t, l, "n")
		if next.Token() <= held.Token() {
			t.Errorf("tokens %d, then %d", held.Token(), next.Token())
		}
		mustUnlock(t, next)
	})
}
