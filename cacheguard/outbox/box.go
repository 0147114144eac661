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
// Make one with New.
type Box struct {
	db     *sql.DB          // the user's
	store  cacheguard.Store // the user's
	opts   Options
	sql    statements
	schema []string
	woken  chan struct{} // has room for one
}

// New makes an outbox on tables that Create makes, or you do, with Schema. The store is that of the
// caches. New reports every invalid option at once and never dials. The db and the store stay the
// caller's.
func New(db *sql.DB, store cacheguard.Store, opts Options) (*Box, error) {
	opts, err := opts.validate()
	if db == nil {
		return nil, errors.Join(errors.New("outbox: the db is nil"), err)
	}
	b := &Box{db: db, store: store, opts: opts, sql: statementsFor(opts), woken: make(chan struct{}, 1)}
	locks, wrongLocks := b.newLocks(opts.Lease, 0)
	cache, wrongStore := b.newCache("any")
	if err := errors.Join(err, wrongStore, wrongLocks); err != nil {
		return nil, err
	}
	b.schema = []string{b.sql.schema, locks.Schema()}
	return b, errors.Join(cache.Close(), locks.Close())
}

// newLocks makes what holds locks with this lease, and waits for the database for so long; 0: as
// long as suits the lease.
func (b *Box) newLocks(lease, patience time.Duration) (*sqllock.Locker, error) {
	locks, err := sqllock.New(b.db, sqllock.Options{
		Dialect: b.opts.Dialect, Table: b.opts.LockTable, Lease: lease, OpTimeout: patience, MaxHold: -1,
		Poll: max(b.opts.Poll, standbyPoll), Logger: b.opts.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return locks, nil
}

// newCache makes what knows how the store is told of changes of a cache. It loads nothing, so it is
// of any type. Of what it has to say the relay says as much.
func (b *Box) newCache(name string) (*cacheguard.Cache[[]byte], error) {
	cache, err := cacheguard.New(b.store, cacheguard.Options[[]byte]{Name: name, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return cache, nil
}

// Schema has the statements that make the tables, for those who have a place for such things.
func (b *Box) Schema() []string { return append([]string(nil), b.schema...) }

// createPatience is how long Create waits for an answer of the database, and how long its lock
// outlives its process: a process that begins while its database is busy had better be late than
// fail.
const createPatience = 30 * time.Second

// Create makes the tables if they aren't there. It is bounded by ctx alone.
func (b *Box) Create(ctx context.Context) error {
	locks, err := b.newLocks(createPatience, createPatience)
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }()
	if err := locks.Create(ctx); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	// Under a lock, since PostgreSQL looks for the table and makes it in two steps. It is not the
	// relay's, which holds that for as long as it works.
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
