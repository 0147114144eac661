package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/sqltable"
)

const (
	defaultTable     = "cacheguard_outbox"
	defaultLockTable = "cacheguard_locks"
	defaultLease     = 5 * time.Second
	defaultPoll      = 250 * time.Millisecond

	minPoll = time.Millisecond
)

// Options configures a Box. Dialect is required; the zero value of another field means its default.
type Options struct {
	// Dialect is the database. PostgreSQL 10 or later, SQLite 3.38 or later.
	Dialect sqllock.Dialect

	// Table has the invalidations that are to be delivered. Default "cacheguard_outbox". It
	// consists of letters, digits and underscores, and may have a schema in front, with a dot
	// between.
	Table string

	// LockTable has the lock of the relays, among locks of other purposes if there are any. Default
	// "cacheguard_locks".
	LockTable string

	// Lease is how long after the death of the process that relays another one takes over. Default
	// 5 s, at least 10 ms.
	Lease time.Duration

	// Poll is how long the relay waits at most before it looks into the table again. Default 250
	// ms, at least 1 ms.
	Poll time.Duration

	// Listen has the relay be woken by NOTIFY, which each transaction with invalidations then sends
	// when it is committed. Every process has to have it then. Default none: the relay polls.
	// PostgreSQL only; sqllock's example has it for pgx.
	Listen sqllock.Listen

	// Logger gets a line when invalidations can't be delivered, when they can be again, and for
	// each row that never can be. Default slog.Default().
	Logger *slog.Logger
}

// validate returns the options with their defaults, and all that is wrong with them but for what
// sqllock says.
func (o Options) validate() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("outbox: Options."+format, args...)) }
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
	switch {
	case o.Poll == 0:
		o.Poll = defaultPoll
	case o.Poll < minPoll:
		wrong("Poll is %v, below the least of %v", o.Poll, minPoll)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}
