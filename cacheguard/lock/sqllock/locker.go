package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/lifetime"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// Locker implements [lock.Locker] on a table of a database. It is safe for concurrent use. Make one
// with [New].
type Locker struct {
	db     *sql.DB // the user's
	opts   Options
	sql    statements
	keeper *tenure.Keeper

	waiting lines
	writes  writes
	ear     ear
	asides  *lifetime.Life // the running tries of statements; never closed

	firstSleep, drowsy time.Duration // the constants; other values only in tests

	cleaned atomic.Int64 // the time from born until this process last tried to remove rows
	born    time.Time
}

var _ lock.Locker = (*Locker)(nil)

// New makes a locker on a table that already exists or that you create later, with [Locker.Create]
// or with the statement of [Locker.Schema]. It reports all invalid options in one error and never
// dials. The db stays the caller's: Close doesn't close it.
func New(db *sql.DB, opts Options) (*Locker, error) {
	opts, err := opts.validate()
	if db == nil {
		err = errors.Join(errors.New("sqllock: the db is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	l := &Locker{
		db: db, opts: opts, sql: statementsFor(opts.Dialect, opts.Table),
		keeper: tenure.NewKeeper(), asides: lifetime.New(),
		waiting: lines{byName: make(map[string]*line)}, born: time.Now(),
		firstSleep: firstSleep, drowsy: drowsy,
	}
	if opts.Dialect == SQLite {
		l.writes = make(writes, 1)
	}
	l.cleaned.Store(-int64(cleanEvery))
	l.ear.init(l)
	return l, nil
}

// Schema returns the statement that creates the table, for programs that keep such statements in
// migrations.
func (l *Locker) Schema() string { return l.sql.schema }

// Create creates the table if it doesn't exist. Only ctx limits the time that Create takes.
func (l *Locker) Create(ctx context.Context) error {
	var err error
	for range 3 {
		// PostgreSQL first checks whether the table exists and then creates it, in two steps. If
		// two processes create the table at once, one of them gets an error because something
		// exists already.
		if _, err = l.db.ExecContext(ctx, l.sql.schema); err == nil || !exists(err) && !busy(err) ||
			ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("sqllock: making the table %s: %w", l.opts.Table, err)
	}
	return nil
}

// Lock waits until it has acquired the lock of the name. If the database can't be used, Lock
// returns its error after OpTimeout at the latest. A call that is already waiting for the lock
// tolerates such errors for up to one Lease. See [lock.Locker].
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, (*claim).lock)
}

// TryLock is like Lock, but doesn't wait for another holder. See [lock.Locker].
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, (*claim).try)
}

func (l *Locker) enter(
	ctx context.Context, name string, acquire func(*claim, context.Context) (*tenure.Hold, error),
) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "sqllock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		return acquire(l.claim(name), ctx)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// wrapped adds the package and the name of the lock to an error.
func wrapped(name string, err error) error { return fmt.Errorf("sqllock: %q: %w", name, err) }

// Close ends the waiting calls with lock.ErrClosed, and closes the Lost channel of each held lock.
// The holders have the rest of their leases, normally at least two thirds of Lease, to stop their
// work, and for this time the rows of their locks stay. Close waits until nothing runs in the
// background any more. If a driver ignores contexts, Close waits for it no longer than three times
// OpTimeout. A second Close has no further effect. The db stays open.
func (l *Locker) Close() error {
	l.ear.close()
	l.keeper.Close()
	timer := time.NewTimer(l.opts.OpTimeout)
	defer timer.Stop()
	select {
	case <-l.asides.Quiet():
	case <-timer.C:
	}
	return nil
}
