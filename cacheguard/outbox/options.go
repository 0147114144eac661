package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/option"
	"github.com/cacheguard/cacheguard/internal/sqltable"
)

const (
	defaultTable     = "cacheguard_outbox"
	defaultLockTable = "cacheguard_locks"
	defaultLease     = 5 * time.Second
	defaultPoll      = 250 * time.Millisecond

	leastLease   = 10 * time.Millisecond // as in sqllock
	mostPatience = 5 * time.Second
	minPoll      = time.Millisecond
)

// Options configures a [Box]. Dialect is required. For the other fields the zero value means the
// default.
type Options struct {
	// Dialect is the kind of database: PostgreSQL 10 or later, or SQLite 3.38 or later.
	Dialect sqllock.Dialect

	// Table is the name of the table of invalidations that wait for delivery. Default
	// "cacheguard_outbox". The name consists of letters, digits and underscores, and doesn't begin
	// with a digit. A schema and a dot may precede it. Together they have at most 63 bytes.
	Table string

	// LockTable is the name of the table with the relays' lock. The table may also have locks for
	// other purposes. Default "cacheguard_locks".
	LockTable string

	// Lease is the time after which another process takes over if the relaying process has died.
	// Half of it, or 5 s if that is less, limits each of a relay's requests for the lock.
	// Default 5 s, at least 10 ms.
	Lease time.Duration

	// Poll is the longest time until the relay reads the table again. Default 250 ms, at least 1
	// ms.
	Poll time.Duration

	// Listen makes NOTIFY wake the relay. Each transaction with invalidations then sends a
	// notification when it is committed. If one process sets Listen, all processes have to set it.
	// Default none: the relay polls. PostgreSQL only. The example of package sqllock has a Listen
	// for pgx.
	Listen sqllock.Listen

	// Logger gets a line when invalidations can't be delivered, when they can be delivered again,
	// when notifications don't arrive, and for each row that can never be delivered. Default
	// slog.Default().
	Logger *slog.Logger
}

// patience returns how long a relay waits for the reply to a request for its lock. If Lease is too
// short, the error shall name Lease.
func (o Options) patience() time.Duration {
	return max(min(o.Lease/2, mostPatience), leastLease/2)
}

// validate returns the options with their defaults set, and all errors of the options, joined,
// except those that sqllock finds.
func (o Options) validate() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbox: Options."+format, args...))
	}
	if o.Table == "" {
		o.Table = defaultTable
	}
	if o.LockTable == "" {
		o.LockTable = defaultLockTable
	}
	if err := sqltable.Wrong(o.Table); err != nil {
		wrong("Table %w", err)
	}
	if o.Table == o.LockTable {
		wrong("Table and Options.LockTable are both %q", o.Table)
	}
	if o.Listen != nil && o.Dialect == sqllock.SQLite {
		wrong("Listen is set, and SQLite has no notifications")
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	errs = append(errs, option.Duration("outbox: Options.Poll", &o.Poll, defaultPoll, minPoll))
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}
