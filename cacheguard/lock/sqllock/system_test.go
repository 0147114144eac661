package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	patience = waittest.Patience     // the time limit for events that must happen
	moment   = 30 * time.Millisecond // the time to wait for events that must not happen
	lease    = 6 * time.Second       // long enough for a busy machine
)

// system is a database with a table of locks that only this test uses.
type system struct {
	Dialect sqllock.Dialect
	Source  string // the data source name for the driver
	Table   string

	// These are for the lockers of a fleet, in this process and in child processes.
	Lease    time.Duration
	Notified bool // they listen
}

var tables atomic.Int64

// onSQLite returns a system on a file that several processes may use.
func onSQLite(t *testing.T) system {
	t.Helper()
	file := filepath.ToSlash(filepath.Join(t.TempDir(), "locks.db"))
	source := "file:" + file +
		"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(500)"
	return system{Dialect: sqllock.SQLite, Source: source}.created(t)
}

// onPostgreSQL returns a system on a new table of the server that all tests share.
func onPostgreSQL(t *testing.T) system {
	t.Helper()
	return at(t, pgtest.Shared(t).Addr())
}

// at returns a system on a table of the server at host:port.
func at(t *testing.T, addr string) system {
	t.Helper()
	return system{
		Dialect: sqllock.PostgreSQL, Source: pgtest.URL(addr),
		Table: fmt.Sprintf("locks_%d", tables.Add(1)),
	}.created(t)
}

// through returns the same system, connected through a proxy.
func (s system) through(p *pgtest.Proxy) system {
	s.Source = pgtest.URL(p.Addr())
	return s
}

func (s system) created(t *testing.T) system {
	t.Helper()
	if err := s.locker(t, s.db(t)).Create(soon(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// onEach runs a test on each database, at the same time.
func onEach(t *testing.T, test func(t *testing.T, s system)) {
	for name, open := range map[string]func(*testing.T) system{
		"SQLite": onSQLite, "PostgreSQL": onPostgreSQL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// connect opens a connection without database/sql.
func (s system) connect() (driver.Conn, error) {
	if s.Dialect == sqllock.SQLite {
		return (&sqlite.Driver{}).Open(s.Source)
	}
	connector, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(s.Source)
	if err != nil {
		return nil, err
	}
	return connector.Connect(context.Background())
}

// db returns a pool of connections for one process.
func (s system) db(t *testing.T) *sql.DB {
	t.Helper()
	_, db := s.spied(t)
	return db
}

func (s system) spied(t *testing.T) (*spy, *sql.DB) {
	t.Helper()
	p := &spy{open: s.connect}
	db := p.db()
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { _ = db.Close() })
	return p, db
}

// locker returns a locker. Its lease is long enough for a busy machine, unless change sets another.
func (s system) locker(t *testing.T, db *sql.DB, change ...func(*sqllock.Options)) *sqllock.Locker {
	t.Helper()
	opts := sqllock.Options{
		Dialect: s.Dialect, Table: s.Table, Lease: lease, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&opts)
	}
	if opts.OpTimeout == 0 {
		opts.OpTimeout = min(patience, opts.Lease)
	}
	l, err := sqllock.New(db, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// process returns a locker with its own connections, like that of a separate process.
func (s system) process(t *testing.T, change ...func(*sqllock.Options)) *sqllock.Locker {
	t.Helper()
	return s.locker(t, s.db(t), change...)
}

// table returns the name of the table in statements.
func (s system) table() string {
	if s.Table == "" {
		return "cacheguard_locks"
	}
	return s.Table
}

// do runs a statement and returns the number of changed rows. LOCKS in the statement is replaced by
// the table.
func (s system) do(t *testing.T, statement string, args ...any) int64 {
	t.Helper()
	result, err := s.db(t).ExecContext(soon(t), strings.ReplaceAll(statement, "LOCKS", s.table()),
		args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// expire ends the lock of a name, as if its holder had died long ago.
func (s system) expire(t *testing.T, name string) {
	t.Helper()
	past := "clock_timestamp() - interval '1 second'"
	if s.Dialect == sqllock.SQLite {
		past = "1"
	}
	if n := s.do(t, "UPDATE LOCKS SET expires = "+past+" WHERE name = $1", []byte(name)); n != 1 {
		t.Fatalf("%d locks of %q", n, name)
	}
}

// token returns the token of a name's last holder.
func (s system) token(t *testing.T, name string) (token int64) {
	t.Helper()
	if err := s.db(t).QueryRowContext(soon(t), "SELECT token FROM "+s.table()+" WHERE name = $1",
		[]byte(name)).Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

// config returns the system as text for a child process.
func (s system) config(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// openProcess opens a locker in a child process, from the text of config.
func openProcess(config string) (lock.Locker, func(), error) {
	var s system
	if err := json.Unmarshal([]byte(config), &s); err != nil {
		return nil, nil, err
	}
	db := (&spy{open: s.connect}).db()
	opts := sqllock.Options{Dialect: s.Dialect, Table: s.Table}
	s.ofFleet(&opts)
	if s.Notified {
		opts.Listen = listen(s.Source)
	}
	l, err := sqllock.New(db, opts)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return l, func() { _, _ = l.Close(), db.Close() }, nil
}

// soon returns a context whose time limit ends a test that hangs.
func soon(t *testing.T) context.Context { return within(t, patience) }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustLock(t *testing.T, l lock.Locker, name string) lock.Lock {
	t.Helper()
	held, err := l.Lock(soon(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// untilLocked tries again while l gets no answer.
func untilLocked(t *testing.T, l lock.Locker, name string) (held lock.Lock) {
	t.Helper()
	waittest.Until(t, "that "+name+" can be had", func() bool {
		var err error
		held, err = l.TryLock(soon(t), name)
		return err == nil
	})
	return held
}

func mustTry(t *testing.T, l lock.Locker, name string) lock.Lock {
	t.Helper()
	held, err := l.TryLock(soon(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func mustUnlock(t *testing.T, held lock.Lock) {
	t.Helper()
	if err := held.Unlock(soon(t)); err != nil {
		t.Fatal(err)
	}
}

func wantHeld(t *testing.T, l lock.Locker, name string) {
	t.Helper()
	if _, err := l.TryLock(soon(t), name); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("TryLock of %q: %v; want ErrHeld", name, err)
	}
}
