package sqllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/sqltable"
)

const (
	defaultTable     = "cacheguard_locks"
	defaultLease     = 10 * time.Second
	defaultMaxHold   = time.Hour
	defaultOpTimeout = time.Second
	defaultPoll      = 250 * time.Millisecond

	minLease     = 10 * time.Millisecond
	minOpTimeout = 2 * time.Millisecond
	minPoll      = time.Millisecond
	maxPrefix    = 128 // bytes, so that a name of any length fits into an index of PostgreSQL and into a notification
)

// Dialect is the database that a Locker speaks to.
type Dialect uint8

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later; 15 is what is tested
	SQLite                        // 3.35 or later
)

// String is its name.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	default:
		return fmt.Sprintf("Dialect(%d)", uint8(d))
	}
}

// Options configures a Locker. Dialect is required; the zero value of another field means its
// default.
type Options struct {
	Dialect Dialect

	// Table has the locks. Default "cacheguard_locks". It consists of letters, digits and
	// underscores, taken as they are written, and may have a schema in front, with a dot between.
	Table string

	// Prefix is what names begin with in the table, 128 bytes at most: it ends with a colon and has
	// no other one, so that lockers of different prefixes share nothing. Default none: then any
	// name is a locker's, also those of prefixes.
	Prefix string

	// Lease is how long a lock outlives its holder. It is renewed at a third of it. Default 10 s,
	// at least 10 ms.
	Lease time.Duration

	// MaxHold is how long a lock may be held at most: then it is lost, and no longer renewed.
	// Default 1 h; negative: no cap.
	MaxHold time.Duration

	// OpTimeout bounds each request to the database, with the wait for a connection and with a
	// second try when no answer came to the first within half of it. Default 1 s, or a third of
	// Lease if that is less; at least 2 ms, at most Lease.
	OpTimeout time.Duration

	// Poll is how long a waiter sleeps at most before it asks again, when nobody wakes it. It
	// begins with 5 ms. Default 250 ms, at least 1 ms. With Listen it is of use only while
	// notifications don't arrive.
	Poll time.Duration

	// Listen has waiters be woken by NOTIFY. Default none: they poll. PostgreSQL only.
	Listen Listen

	// Logger gets a line when notifications don't arrive, when they do again, and when old rows
	// can't be removed. Default slog.Default().
	Logger *slog.Logger
}

// Listen delivers the notifications of a channel of PostgreSQL. database/sql can't do that, drivers
// can; the package's example has it for pgx. It opens a connection of its own, says LISTEN there
// with the channel as a quoted identifier, calls standing when that was confirmed, and then heard
// for each notification, until ctx ends or the connection breaks; then it closes the connection and
// returns. It has to find out by itself, within a few seconds, that nobody is at the other end any
// more, so it asks from time to time.
//
// The Locker calls it on one goroutine, and again when it has returned, until Close, which waits
// for it.
type Listen func(ctx context.Context, channel string, standing func(), heard func(payload string)) error

// validate returns the options with their defaults, and all that is wrong with them.
func (o Options) validate() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sqllock: Options."+format, args...)) }
	duration := func(name string, d *time.Duration, byDefault, least time.Duration) {
		switch {
		case *d == 0:
			*d = byDefault
		case *d < least:
			wrong("%s is %v, below the least of %v", name, *d, least)
		}
	}

	switch o.Dialect {
	case PostgreSQL, SQLite:
	case 0:
		wrong("Dialect is not set; say PostgreSQL or SQLite")
	default:
		wrong("Dialect is %v; say PostgreSQL or SQLite", o.Dialect)
	}
	if o.Table == "" {
		o.Table = defaultTable
	}
	if err := sqltable.Wrong(o.Table); err != nil {
		wrong("Table %w", err)
	}
	if len(o.Prefix) > maxPrefix {
		wrong("Prefix has %d bytes, more than %d", len(o.Prefix), maxPrefix)
	}
	if o.Prefix != "" && strings.IndexByte(o.Prefix, ':') != len(o.Prefix)-1 {
		wrong("Prefix is %q; it has to end with a colon and have no other one, or names of two prefixes could be one", o.Prefix)
	}
	duration("Lease", &o.Lease, defaultLease, minLease)
	duration("OpTimeout", &o.OpTimeout, max(min(defaultOpTimeout, o.Lease/3), minOpTimeout), minOpTimeout)
	if o.OpTimeout > o.Lease && o.Lease >= minLease {
		wrong("OpTimeout is %v, more than the Lease of %v", o.OpTimeout, o.Lease)
	}
	duration("Poll", &o.Poll, defaultPoll, minPoll)
	switch {
	case o.MaxHold == 0:
		o.MaxHold = defaultMaxHold
	case o.MaxHold < 0:
		o.MaxHold = 0
	}
	if o.Listen != nil && o.Dialect == SQLite {
		wrong("Listen is set, and SQLite has no notifications")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}
