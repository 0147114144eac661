package sqllock_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// Two names are the same name exactly if their bytes are equal, and the row contains the name
// without changes.
func FuzzNames(f *testing.F) {
	for _, pair := range [][2]string{
		{"a", "A"}, {"a", "a\x00"}, {"\x00", "\x00\x00"}, {"é", "e\u0301"}, {"\xff", "\xfe"},
		{"' OR 1=1 --", "x'00'"}, {"n", "n"}, {"?1", "$1"},
	} {
		f.Add(pair[0], pair[1])
	}
	s := system{
		Dialect: sqllock.SQLite,
		Source: "file:" + filepath.ToSlash(filepath.Join(f.TempDir(), "locks.db")) +
			"?_pragma=synchronous(0)&_pragma=journal_mode(memory)",
	}
	db := (&spy{open: s.connect}).db()
	db.SetMaxOpenConns(1) // so that fuzzing is quick
	f.Cleanup(func() { _ = db.Close() })
	locker, err := sqllock.New(db, sqllock.Options{
		Dialect: s.Dialect, Lease: time.Minute, OpTimeout: time.Minute, // the machine may be busy
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = locker.Close() })
	if err := locker.Create(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		held, err := locker.TryLock(soon(t), a)
		if a == "" || len(a) > lock.MaxName {
			if err == nil || errors.Is(err, lock.ErrHeld) {
				t.Fatalf("a name of %d bytes: %v", len(a), err)
			}
			return
		}
		if err != nil {
			t.Fatalf("TryLock of %q: %v", a, err)
		}
		if b != "" && len(b) <= lock.MaxName {
			other, err := locker.TryLock(soon(t), b)
			if same := errors.Is(err, lock.ErrHeld); same != (a == b) || !same && err != nil {
				t.Errorf("%q, while %q is held: %v", b, a, err)
			}
			if err == nil {
				mustUnlock(t, other)
			}
		}
		var rows int
		if err := db.QueryRow("SELECT count(*) FROM cacheguard_locks WHERE name = $1",
			[]byte(a)).Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%q has %d rows, %v", a, rows, err)
		}
		mustUnlock(t, held)
	})
}
