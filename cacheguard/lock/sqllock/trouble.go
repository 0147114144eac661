package sqllock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// noAnswer is the error of a try that got no reply in time. It doesn't wrap
// context.DeadlineExceeded, because callers would take this error for the end of their context.
type noAnswer struct {
	within time.Duration
	said   error // the driver's error
}

func (e *noAnswer) Error() string {
	return fmt.Sprintf("no answer within %v (%v)", e.within.Round(time.Millisecond), e.said)
}

// Timeout implements net.Error.
func (*noAnswer) Timeout() bool { return true }

func unanswered(err error) bool {
	var n *noAnswer
	return errors.As(err, &n)
}

// sinceThen replaces the time in the error of the last try by the time that all tries took, because
// the last try may have had hardly any time.
func sinceThen(began time.Time, err error) error {
	var n *noAnswer
	if !errors.As(err, &n) {
		return err
	}
	return &noAnswer{time.Since(began), n.said}
}

// state returns the SQLSTATE of an error of PostgreSQL, or "". The errors of pgx and of lib/pq have
// it.
func state(err error) string {
	var said interface{ SQLState() string }
	if errors.As(err, &said) {
		return said.SQLState()
	}
	return ""
}

// busy reports whether the error means that SQLite has another writer. It looks at the text of the
// error, because only the text is the same in all drivers.
func busy(err error) bool {
	text := err.Error()
	return strings.Contains(text, "database is locked") ||
		strings.Contains(text, "table is locked") || strings.Contains(text, "SQLITE_BUSY")
}

// refused reports whether the database itself refused, so that nothing was done.
func refused(err error) bool {
	switch s := state(err); {
	case s == "":
		return busy(err)
	case strings.HasPrefix(s, "08"), strings.HasPrefix(s, "57P"):
		// The connection, or the server, has ended.
		return false
	default:
		return true
	}
}

// passing reports whether the same request may succeed a moment later.
func (l *Locker) passing(err error) bool {
	switch s := state(err); {
	case s == "":
		// An error of PostgreSQL without a SQLSTATE: the server was not reached.
		return busy(err) || unanswered(err) || l.opts.Dialect == PostgreSQL
	case strings.HasPrefix(s, "40"), // serialization failure, deadlock
		// The connection or the server has ended, or the server is starting.
		strings.HasPrefix(s, "08"), strings.HasPrefix(s, "57P"),
		s == "53300", // too many connections
		s == "55P03": // lock_timeout
		return true
	}
	return false
}

// exists reports whether an error means that a table, or a part of it, exists already.
func exists(err error) bool {
	switch state(err) {
	case "23505", "42P07", "42710":
		return true
	}
	return false
}

// errNoToken is the error if no token can be larger than the token in the row.
var errNoToken = errors.New("no larger token fits into 64 bits")

// spoilt returns the error for a row with values that no locker writes.
func (l *Locker) spoilt(err error) error {
	return fmt.Errorf(
		"the row of this lock in the table %s has a token or an end that no locker writes; delete the row when nobody has the lock, and reset what remembers the token: %w",
		l.opts.Table, err)
}

// explained adds to an error what its reader can do about it.
func (l *Locker) explained(err error) error {
	text := err.Error()
	switch s := state(err); {
	case s == "42P01", s == "3F000", strings.Contains(text, "no such table"):
		hint := "make it with Locker.Create, or with what Locker.Schema says"
		if l.opts.Dialect == SQLite {
			hint += "; mind that each connection to :memory: has a database of its own"
		}
		return fmt.Errorf("there is no table %s; %s: %w", l.opts.Table, hint, err)
	case s == "42703", s == "42804", s == "42883", strings.Contains(text, "no such column"):
		return fmt.Errorf("the table %s is not one of locks; see Locker.Schema: %w", l.opts.Table,
			err)
	case s == "22003", s == "22008": // out of the range of integers, or of times
		return l.spoilt(err)
	case unanswered(err):
		if stats := l.db.Stats(); stats.MaxOpenConnections > 0 &&
			stats.InUse >= stats.MaxOpenConnections {
			return fmt.Errorf("all %d connections of the db are in use: %w",
				stats.MaxOpenConnections, err)
		}
	}
	return err
}
