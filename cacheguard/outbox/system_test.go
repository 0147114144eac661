package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/outbox"
	"github.com/cacheguard/cacheguard/internal/pgtest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

const (
	patience = waittest.Patience // the time-out for events that must happen
	never    = time.Hour         // a poll interval that is longer than any test
)

// system is a database in which the test has tables of its own.
type system struct {
	Dialect   sqllock.Dialect
	Source    string // the data source for the driver
	Table     string
	LockTable string
}

var tables atomic.Int64

// onSQLite returns a database file that several processes may use.
func onSQLite(t testing.TB) system {
	t.Helper()
	file := filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))
	source := "file:" + file +
		"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(5000)&_txlock=immediate"
	return system{
		Dialect: sqllock.SQLite, Source: source, Table: "outbox", LockTable: "locks",
	}.created(t)
}

// onPostgreSQL makes tables for the test on the server that all tests share.
func onPostgreSQL(t testing.TB) system {
	t.Helper()
	n := tables.Add(1)
	return system{
		Dialect: sqllock.PostgreSQL, Source: pgtest.URL(pgtest.Shared(t).Addr()),
		Table: fmt.Sprintf("outbox_%d", n), LockTable: fmt.Sprintf("locks_%d", n),
	}.created(t)
}

func (s system) created(t testing.TB) system {
	t.Helper()
	if err := s.box(t, nil).Create(soon(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// onEach runs a test on each database, at the same time.
func onEach(t *testing.T, test func(t *testing.T, s system)) {
	for name, open := range map[string]func(testing.TB) system{
		"SQLite": onSQLite, "PostgreSQL": onPostgreSQL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func (s system) open() (*sql.DB, error) {
	driver := "sqlite"
	if s.Dialect == sqllock.PostgreSQL {
		driver = "pgx"
	}
	db, err := sql.Open(driver, s.Source)
	if err == nil {
		db.SetMaxOpenConns(8)
	}
	return db, err
}

// db returns a pool of connections, like that of a process.
func (s system) db(t testing.TB) *sql.DB {
	t.Helper()
	db, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// box returns an outbox with connections of its own, like that of another process. Without a store
// it delivers to nobody.
func (s system) box(
	t testing.TB, store cacheguard.Store, change ...func(*outbox.Options),
) *outbox.Box {
	t.Helper()
	if store == nil {
		store = memoryStore(t)
	}
	b, err := outbox.New(s.db(t), store, s.options(change...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s system) options(change ...func(*outbox.Options)) outbox.Options {
	opts := outbox.Options{
		Dialect: s.Dialect, Table: s.Table, LockTable: s.LockTable, Lease: 10 * time.Second,
		Poll: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&opts)
	}
	return opts
}

// run runs the box's relay until the test ends or stop is called. stop waits for its end.
func run(t testing.TB, b *outbox.Box) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := waittest.Next(t, "the relay's end", done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// exec executes a statement in which OUTBOX stands for the table.
func (s system) exec(t testing.TB, db outbox.Tx, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(soon(t), strings.ReplaceAll(statement, "OUTBOX", s.Table),
		args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// in calls do in a transaction and commits it.
func in(t testing.TB, db *sql.DB, do func(tx *sql.Tx) error) {
	t.Helper()
	tx, err := db.BeginTx(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(tx), tx.Commit()); err != nil {
		t.Fatal(err)
	}
}

func memoryStore(t testing.TB) *memstore.Store {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// ledger is a store that records the changes it gets, and that can be away.
type ledger struct {
	cacheguard.Store
	during func() // if it isn't nil, it is called before keys are invalidated

	mu    sync.Mutex
	told  []string
	away  error
	tells []func(cacheguard.Message) // the listeners
	news  chan struct{}              // has room for one
}

func newLedger(t *testing.T) *ledger {
	return &ledger{Store: memoryStore(t), news: make(chan struct{}, 1)}
}

func (l *ledger) be(away error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

func (l *ledger) note(format string, args ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away == nil {
		l.told = append(l.told, fmt.Sprintf(format, args...))
	}
	select {
	case l.news <- struct{}{}:
	default:
	}
	return l.away
}

func (l *ledger) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	l.mu.Lock()
	l.tells = append(l.tells, tell)
	l.mu.Unlock()
	return l.Store.Listen(cache, tell)
}

// says tells all listeners, also those that have stopped.
func (l *ledger) says(kind cacheguard.MessageKind) {
	l.mu.Lock()
	tells := slices.Clone(l.tells)
	l.mu.Unlock()
	for _, tell := range tells {
		tell(cacheguard.Message{Kind: kind, Generation: l.Now().UnixMicro()})
	}
}

// all returns all changes so far.
func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

// await waits until ok accepts the changes so far.
func (l *ledger) await(t *testing.T, what string, ok func(told []string) bool) []string {
	t.Helper()
	timeout := time.After(patience)
	for {
		if told := l.all(); ok(told) {
			return told
		}
		select {
		case <-l.news:
		case <-timeout:
			t.Fatalf("still waiting for %s; told so far: %q", what, l.all())
		}
	}
}

func (l *ledger) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	if l.during != nil {
		l.during()
	}
	return errors.Join(l.noteKeys("key", keys), l.Store.Invalidate(ctx, keys))
}

func (l *ledger) MarkStale(ctx context.Context, keys []cacheguard.Key, at int, mark []byte) error {
	return errors.Join(l.noteKeys("stale-key", keys), l.Store.MarkStale(ctx, keys, at, mark))
}

func (l *ledger) noteKeys(what string, keys []cacheguard.Key) error {
	for _, k := range keys {
		if err := l.note("%s %s %q", what, k.Cache, k.Key); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) InvalidateTags(ctx context.Context, cache string, tags []string) (int64, error) {
	if err := l.note("tags %s %q", cache, tags); err != nil {
		return 0, err
	}
	return l.Store.InvalidateTags(ctx, cache, tags)
}

// soon returns a context with a deadline, so that a test that hangs ends.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
