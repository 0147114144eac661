package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

// Box writes invalidations into transactions, and delivers them. It is safe for concurrent use.
// Make one with [New].
type Box struct {
	db     *sql.DB          // the user's
	store  cacheguard.Store // the user's
	opts   Options
	sql    statements
	schema []string
	woken  chan struct{} // wakes the relay; has room for one
}

// New makes an outbox. [Box.Create] makes its tables, or you make them with the statements of
// [Box.Schema]. The store is the one that the caches use. New reports all invalid options in one
// error and never dials. The db and the store belong to the caller.
func New(db *sql.DB, store cacheguard.Store, opts Options) (*Box, error) {
	opts, err := opts.validate()
	if db == nil {
		return nil, errors.Join(errors.New("outbox: the db is nil"), err)
	}
	b := &Box{
		db: db, store: store, opts: opts, sql: statementsFor(opts), woken: make(chan struct{}, 1),
	}
	locks, wrongLocks := b.newLocks(opts.Lease, opts.patience())
	cache, wrongStore := b.newCache("any")
	if err := errors.Join(err, wrongStore, wrongLocks); err != nil {
		return nil, err
	}
	b.schema = []string{b.sql.schema, locks.Schema()}
	return b, errors.Join(cache.Close(), locks.Close())
}

// newLocks makes a locker with this lease that waits up to patience for the database. A connection
// that isn't ready when half of patience is over is thrown away, so with little patience a relay
// would never get a slow connection.
func (b *Box) newLocks(lease, patience time.Duration) (*sqllock.Locker, error) {
	locks, err := sqllock.New(b.db, sqllock.Options{
		Dialect: b.opts.Dialect, Table: b.opts.LockTable, Lease: lease, OpTimeout: patience,
		MaxHold: -1,
		Poll:    max(b.opts.Poll, standbyPoll), Logger: b.opts.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return locks, nil
}

// newCache makes a cache that the relay uses to send invalidations to the store. The cache loads
// nothing, so its type doesn't matter. It logs nothing, because the relay logs the same errors.
func (b *Box) newCache(name string) (*cacheguard.Cache[[]byte], error) {
	cache, err := cacheguard.New(b.store,
		cacheguard.Options[[]byte]{Name: name, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return cache, nil
}

// Schema returns the statements that create the tables, for programs that keep such statements in
// migrations.
func (b *Box) Schema() []string { return append([]string(nil), b.schema...) }

// createLease is how long Create waits for a reply of the database, and how long its lock lasts
// after its process has died. It is long, because a process that starts while the database is busy
// should rather be late than fail.
const createLease = 30 * time.Second

// Create creates the tables if they don't exist. Only ctx limits how long that takes.
func (b *Box) Create(ctx context.Context) error {
	locks, err := b.newLocks(createLease, createLease)
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }()
	if err := locks.Create(ctx); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	// Create holds a lock, because PostgreSQL checks for the table and creates it in two steps.
	// This is not the lock of the relay, because a relay holds that lock as long as it works.
	held, err := locks.Lock(ctx, b.lockName()+":create")
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	defer func() { _ = held.Unlock(ctx) }()
	if _, err := b.db.ExecContext(ctx, b.sql.schema); err != nil {
		return fmt.Errorf("outbox: making the table %s: %w", b.opts.Table, err)
	}
	return nil
}

func (b *Box) lockName() string { return "outbox:" + b.opts.Table }
