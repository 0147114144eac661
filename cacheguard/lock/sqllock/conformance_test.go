package sqllock_test

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/pgtest"
)

const (
	poll = 250 * time.Millisecond // the default of Options.Poll

	// The suite waits for many ends of leases. A case that was too slow for this lease begins again
	// with a longer one.
	fleetLease = 2 * time.Second
)

// ofFleet sets the options of a fleet's lockers, in this process and in child processes.
func (s system) ofFleet(o *sqllock.Options) { o.Lease, o.OpTimeout = s.Lease, s.Lease }

func TestConformanceOnSQLite(t *testing.T) {
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		t.Parallel() // these tests wait most of the time
		return onSQLite(t).sqliteFleet(t, fleetLease)
	})
}

func (s system) sqliteFleet(t *testing.T, lease time.Duration) locktest.Fleet {
	s.Lease = lease
	spy, db := s.spied(t)
	return locktest.Fleet{
		Lockers: []lock.Locker{
			s.locker(t, db, s.ofFleet), s.process(t, s.ofFleet), s.process(t, s.ofFleet),
		},
		Lease: lease, Poll: poll, Fenced: true, Reentrant: true, OneWriter: true,
		Longer:    func(lease time.Duration) locktest.Fleet { return s.sqliteFleet(t, lease) },
		Cut:       spy.cut,
		LoseReply: func() { spy.loseReply("INSERT") },
		Steal: func(name string) {
			s.do(t, "UPDATE LOCKS SET owner = x'', expires = 0 WHERE name = $1", []byte(name))
		},
		Process: s.config(t),
	}
}

func TestConformanceOnPostgreSQL(t *testing.T) {
	pgtest.Shared(t) // without a server, skip all tests at once
	runOnPostgreSQL(t, false)
}

func TestConformanceOnPostgreSQLWithNotifications(t *testing.T) {
	pgtest.Shared(t)
	runOnPostgreSQL(t, true)
}

func runOnPostgreSQL(t *testing.T, notified bool) {
	locktest.Run(t, func(t *testing.T) locktest.Fleet {
		t.Parallel()
		s := onPostgreSQL(t)
		s.Notified = notified
		return s.postgreSQLFleet(t, fleetLease)
	})
}

func (s system) postgreSQLFleet(t *testing.T, lease time.Duration) locktest.Fleet {
	s.Lease = lease
	proxy := pgtest.StartProxy(t, pgtest.Shared(t).Addr())
	open := func(s system) *sqllock.Locker {
		return s.process(t, s.ofFleet, func(o *sqllock.Options) {
			if s.Notified {
				o.Listen = listen(s.Source)
			}
		})
	}
	f := locktest.Fleet{
		Lockers: []lock.Locker{open(s.through(proxy)), open(s), open(s)},
		Lease:   lease, Poll: poll, Fenced: true, Reentrant: true,
		Longer: func(lease time.Duration) locktest.Fleet { return s.postgreSQLFleet(t, lease) },
		Cut: func() func() {
			proxy.Blackhole(true)
			return func() { proxy.Blackhole(false) }
		},
		LoseReply: func() { proxy.LoseReply(pgtest.Executes) },
		Steal:     func(name string) { s.do(t, "DELETE FROM LOCKS WHERE name = $1", []byte(name)) },
		Process:   s.config(t),
	}
	if s.Notified {
		f.Poll = 0
	}
	return f
}

// cut blocks all data until heal is called.
func (p *spy) cut() (heal func()) {
	healed := make(chan struct{})
	p.onBefore(func(s seen) error {
		select {
		case <-healed:
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	})
	return func() { close(healed) }
}

// loseReply makes the driver carry out the next statement with these words and lose its reply.
func (p *spy) loseReply(words string) {
	var done atomic.Bool
	p.onAfter(func(s seen) error {
		if s.is(words) && done.CompareAndSwap(false, true) {
			return io.ErrUnexpectedEOF
		}
		return nil
	})
}
