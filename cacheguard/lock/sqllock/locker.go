package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// Locker implements lock.Locker on a table of a database. It is safe for concurrent use. Make one
// with New.
type Locker struct {
	db     *sql.DB // the user's
	opts   Options
	sql    statements
	keeper *tenure.Keeper

	waiting lines
	writes  writes
	ear     ear
	asides  sync.WaitGroup // statements under way
	drowsy  time.Duration  // drowsy, unless a test wants to know who was woken

	cleaned atomic.Int64 // when this process last tried to remove rows, since born
	born    time.Time
}

var _ lock.Locker = (*Locker)(nil)

// New makes a locker on a table that Create makes, or you do, with Schema. It reports every invalid
// option at once and never dials. The db stays the caller's: Close doesn't close it.
func New(db *sql.DB, opts Options) (*Locker, error) {
	opts, err := opts.validate()
	if db == nil {
		err = errors.Join(errors.New("sqllock: the db is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	l := &Locker{
		db: db, opts: opts, sql: statementsFor(opts.Dialect, opts.Table), keeper: tenure.NewKeeper(),
		waiting: lines{byName: make(map[string]*line)}, drowsy: drowsy, born: time.Now(),
	}
	if opts.Dialect == SQLite {
		l.writes = make(writes, 1)
	}
	l.cleaned.Store(-int64(cleanEvery))
	l.ear.init(l)
	return l, nil
}

// Schema is the statement that makes the table, for those who have a place for such things.
func (l *Locker) Schema() string { return l.sql.schema }

// Create makes the table if there is none. It is bounded by ctx alone.
func (l *Locker) Create(ctx context.Context) error {
	var err error
	for range 3 {
		// PostgreSQL looks whether the table is there and makes it, in two steps: of two who do so
		// at once, one is told that something is there already.
		if _, err = l.db.ExecContext(ctx, l.sql.schema); err == nil || !exists(err) && !busy(err) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("sqllock: making the table %s: %w", l.opts.Table, err)
	}
	return nil
}

// Lock waits until it has the lock of the name. If the database can't be used, that is its error,
// after OpTimeout at the latest; when it already waits it rides that out for up to one Lease. See
// lock.Locker.
func (l *Locker) Lock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, (*claim).lock)
}

// TryLock is Lock without the wait for another holder. See lock.Locker.
func (l *Locker) TryLock(ctx context.Context, name string) (lock.Lock, error) {
	return l.enter(ctx, name, (*claim).try)
}

func (l *Locker) enter(ctx context.Context, name string, acquire func(*claim, context.Context) (*tenure.Hold, error)) (lock.Lock, error) {
	held, err := l.keeper.Acquire(ctx, "sqllock", name, func(ctx context.Context) (*tenure.Hold, error) {
		return acquire(l.claim(name), ctx)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// wrapped says whose error it is, and of which lock.
func wrapped(name string, err error) error { return fmt.Errorf("sqllock: %q: %w", name, err) }

// Close ends waits with lock.ErrClosed, has held locks be lost to their holders, so that these have
// one lease to stop, and waits until nothing is done any more; for a driver that doesn't look at
// contexts no longer than three times OpTimeout. The rows of lost locks stay until then. Another
// Close does nothing. The db stays open.
func (l *Locker) Close() error {
	l.ear.close()
	l.keeper.Close()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		l.asides.Wait()
	}()
	timer := time.NewTimer(l.opts.OpTimeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
	return nil
}
