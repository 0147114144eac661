package sqllock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// unused returns a db that must not be used.
func unused(t *testing.T) *sql.DB {
	t.Helper()
	spy := &spy{}
	db := spy.db() // a connection would need the function open, which isn't set
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestAllThatIsWrongIsReported(t *testing.T) {
	_, err := sqllock.New(nil, sqllock.Options{
		Dialect: 7, Table: "a b", Prefix: strings.Repeat("p", 129),
		Lease: time.Millisecond, OpTimeout: time.Millisecond, Poll: -1,
	})
	wantError(t, err, "db is nil", "Dialect(7)", `"a b"`, "129 bytes", "end with a colon",
		"Options.Lease is 1ms", "Options.OpTimeout is 1ms", "Options.Poll is -1ns")
	_, err = sqllock.New(unused(t),
		sqllock.Options{Dialect: sqllock.SQLite, Lease: time.Second, OpTimeout: 2 * time.Second})
	wantError(t, err, "OpTimeout is 2s, more than the Lease of 1s")
	_, err = sqllock.New(unused(t), sqllock.Options{})
	wantError(t, err, "Options.Dialect is not set")
	_, err = sqllock.New(unused(t), sqllock.Options{
		Dialect: sqllock.SQLite,
		Listen:  func(context.Context, string, func(), func(string)) error { return nil },
	})
	wantError(t, err, "SQLite has no notifications")
}

func TestDefaultsAreFine(t *testing.T) {
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.SQLite} {
		l, err := sqllock.New(unused(t),
			sqllock.Options{Dialect: d, MaxHold: -1, Lease: 10 * time.Millisecond})
		if err != nil {
			t.Fatalf("%v: %v", d, err)
		}
		if !strings.Contains(l.Schema(), `"cacheguard_locks"`) {
			t.Errorf("%v: the table is in %s", d, l.Schema())
		}
		_ = l.Close()
		_ = l.Close()
	}
}

// With these prefixes two different pairs of prefix and name never have the same lock.
func TestPrefixNames(t *testing.T) {
	for prefix, fine := range map[string]bool{
		"": true, "shop:": true, "a/b:": true, ":": true, "\x00:": true,
		"shop": false, "shop:eu": false, "shop:eu:": false, ":shop": false, "::": false,
	} {
		l, err := sqllock.New(unused(t), sqllock.Options{Dialect: sqllock.SQLite, Prefix: prefix})
		if (err == nil) != fine {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}

// A table name becomes part of statements, so only names that can't be taken for other SQL are
// allowed.
func TestTableNames(t *testing.T) {
	for table, fine := range map[string]bool{
		"locks": true, "Locks_2": true, "_": true, "order": true, "app.locks": true,
		strings.Repeat("t", 63): true,
		"2locks":                false, "a.b.c": false, ".a": false, "a.": false, "a-b": false,
		"a b": false,
		"ü":   false, "a\n": false,
		`a"`: false, `"a"`: false, "a;b": false, "a'": false, "a--": false, "a/*": false,
		"a\x00": false, `a"; DROP TABLE users; --`: false,
		strings.Repeat("t", 64): false, " ": false,
	} {
		l, err := sqllock.New(unused(t), sqllock.Options{Dialect: sqllock.SQLite, Table: table})
		if (err == nil) != fine {
			t.Errorf("table %q: %v", table, err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}
