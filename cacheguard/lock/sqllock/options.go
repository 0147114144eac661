package sqllock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/option"
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
	// The most bytes of a prefix, so that a name of any valid length fits into an index of
	// PostgreSQL and into a notification.
	maxPrefix = 128
)

// Dialect is the kind of database that a [Locker] uses.
type Dialect uint8

const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later; tested with 15
	SQLite                        // 3.35 or later
)

// String returns the name of the database.
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

// Options configures a [Locker]. Dialect is required. For the other fields the zero value means the
// default.
type Options struct {
	Dialect Dialect

	// Table is the name of the table of locks. Default "cacheguard_locks". The name consists of
	// letters, digits and underscores, doesn't begin with a digit, and its case matters. A schema
	// and a dot may precede the name. Together they have at most 63 bytes.
	Table string

	// Prefix is put in front of each name in the table. It has at most 128 bytes, ends with a colon
	// and has no other colon. So lockers with different prefixes share nothing. Default none. A
	// locker without a prefix can use any name, including names with the prefixes of other lockers.
	Prefix string

	// Lease is the time that a lock lasts after its holder died. A held lock is renewed every third
	// of Lease. Default 10 s, at least 10 ms.
	Lease time.Duration

	// MaxHold is the longest time that a lock may be held. After MaxHold the Lost channel of the
	// lock is closed, and the lock is no longer renewed. Default 1 h. Negative means no limit.
	MaxHold time.Duration

	// OpTimeout limits each request to the database. This includes the wait for a connection, and a
	// second try if the database hasn't replied within half of OpTimeout. Default 1 s, or a third
	// of Lease if that is less; at least 2 ms, at most Lease.
	OpTimeout time.Duration

	// Poll is the longest pause after which a waiting call sends its request again if nothing wakes
	// it earlier. The first pause is 5 ms. Default 250 ms, at least 1 ms. With Listen, Poll applies
	// only while notifications don't arrive.
	Poll time.Duration

	// Listen makes NOTIFY wake the waiting calls. Without Listen, which is the default, they poll.
	// PostgreSQL only.
	Listen Listen

	// Logger gets a line when notifications stop arriving, when they arrive again, and when old
	// rows can't be removed. Default slog.Default().
	Logger *slog.Logger
}

// Listen delivers the notifications of a channel of PostgreSQL. database/sql can't deliver
// notifications, but drivers can: the package's example has a Listen for pgx. The function opens
// its own connection and sends LISTEN with the channel as a quoted identifier. When the server has
// confirmed LISTEN, the function calls standing, and then heard for each notification, until ctx
// ends or the connection breaks. Then it closes the connection and returns. If the server is no
// longer reachable, the function has to find this out by itself within a few seconds, so it sends a
// query from time to time.
//
// The [Locker] calls Listen on one goroutine. Each time Listen has returned, the Locker calls it
// again, until [Locker.Close]. Close waits until Listen has returned.
type Listen func(ctx context.Context, channel string, standing func(),
	heard func(payload string)) error

// validate returns the options with their defaults set, and an error that names all invalid
// options.
func (o Options) validate() (Options, error) {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("sqllock: Options."+format, args...))
	}
	duration := func(name string, d *time.Duration, byDefault, least time.Duration) {
		errs = append(errs, option.Duration("sqllock: Options."+name, d, byDefault, least))
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
		wrong("Prefix is %q; it has to end with a colon and have no other one, or names of two prefixes could be one",
			o.Prefix)
	}
	duration("Lease", &o.Lease, defaultLease, minLease)
	duration("OpTimeout", &o.OpTimeout, max(min(defaultOpTimeout, o.Lease/3), minOpTimeout),
		minOpTimeout)
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
