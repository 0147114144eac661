package sqllock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// wantSpoilt checks that an error contains the advice for a forged row.
func wantSpoilt(t *testing.T, err error, table string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, says := range []string{`"n"`, "table " + table, "token", "delete the row"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("nothing about %q in: %v", says, err)
		}
	}
}

// The largest possible token is given once. After that, the error says what to do, and no token is
// given twice.
func TestTokensEnd(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t)
		mustUnlock(t, mustLock(t, l, "n"))
		s.do(t, "UPDATE LOCKS SET token = 9223372036854775806")
		last := mustLock(t, l, "n")
		if last.Token() != 1<<63-1 {
			t.Fatalf("token %d", last.Token())
		}
		wantHeld(t, l, "n")
		_, err := l.Continue(soon(t), "n", last.Token())
		wantSpoilt(t, err, s.table())
		_, err = l.SeizeUnsafely(soon(t), "n")
		wantSpoilt(t, err, s.table())
		mustUnlock(t, last)
		_, err = l.Lock(soon(t), "n")
		wantSpoilt(t, err, s.table())
		_, err = l.TryLock(soon(t), "n")
		wantSpoilt(t, err, s.table())
		_, err = l.SeizeUnsafely(soon(t), "n")
		wantSpoilt(t, err, s.table())
		if s.token(t, "n") != last.Token() {
			t.Errorf("the token is %d", s.token(t, "n"))
		}
		s.do(t, "DELETE FROM LOCKS WHERE name = $1", []byte("n"))
		mustUnlock(t, mustLock(t, l, "n"))
	})
}

// If SQLite has a value that is no number in a column for numbers, the error is the same.
func TestTokensOfAnotherType(t *testing.T) {
	s := onSQLite(t)
	l := s.process(t)
	for _, forged := range []string{
		"token = 9.3e18", "token = 'x'", "token = 2e15 + 0.5", "expires = 'never'",
		"token = 9.3e18, expires = 9e15",
	} {
		mustUnlock(t, mustLock(t, l, "n"))
		s.do(t, "UPDATE LOCKS SET "+forged)
		_, err := l.TryLock(soon(t), "n")
		wantSpoilt(t, err, s.table())
		s.do(t, "DELETE FROM LOCKS WHERE name = $1", []byte("n"))
	}
}

// If a lock ends only in the far future, calls don't wait for it. It can be taken by force.
func TestLockWithoutEnd(t *testing.T) {
	onEach(t, func(t *testing.T, s system) {
		l := s.process(t)
		mustUnlock(t, mustLock(t, l, "n"))
		far := "'9999-01-01'"
		if s.Dialect == sqllock.SQLite {
			far = "9000000000000000000"
		}
		s.do(t, "UPDATE LOCKS SET owner = $1, expires = "+far, []byte("x"))
		for what, ask := range map[string]func() (lock.Lock, error){
			"Lock":    func() (lock.Lock, error) { return l.Lock(soon(t), "n") },
			"TryLock": func() (lock.Lock, error) { return l.TryLock(soon(t), "n") },
		} {
			if _, err := ask(); !errors.Is(err, lock.ErrHeld) ||
				!strings.Contains(err.Error(), "delete the row") ||
				!strings.Contains(err.Error(), s.table()) {
				t.Errorf("%s says %v", what, err)
			}
		}
		seized, err := l.SeizeUnsafely(soon(t), "n")
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, seized)
		mustUnlock(t, mustLock(t, l, "n"))
		if s.Dialect == sqllock.PostgreSQL {
			s.do(t, "UPDATE LOCKS SET owner = $1, expires = 'infinity'", []byte("x"))
			_, err := l.TryLock(soon(t), "n")
			wantSpoilt(t, err, s.table())
		}
	})
}
