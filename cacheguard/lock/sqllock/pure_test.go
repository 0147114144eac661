package sqllock

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// In the database a lock never ends before the end that its holder assumes, and only a little
// later, whatever the unit.
func TestLasting(t *testing.T) {
	for _, d := range []Dialect{PostgreSQL, SQLite} {
		s := statementsFor(d, defaultTable)
		for _, lease := range []time.Duration{
			minLease, minLease + 1, 333333333, time.Second, time.Second - 1, time.Hour,
		} {
			lasts := time.Duration(s.lasting(lease)) * s.unit
			if least := lease + lease/200 + s.unit; lasts < least ||
				lasts > lease+lease/50+3*s.unit {
				t.Errorf("%v: a lease of %v lasts %v", d, lease, lasts)
			}
		}
	}
}

func TestSleep(t *testing.T) {
	const poll = 100 * time.Millisecond
	for range 100 {
		s := newSleep(firstSleep, poll, drowsy)
		most := firstSleep
		for range 10 {
			if d := s.next(answer{}, false); d < most/2 || d > most {
				t.Fatalf("%v, want half of %v to all of it", d, most)
			}
			most = min(2*most, poll)
		}
		if d := s.next(answer{left: 10 * time.Millisecond}, false); d > 12*time.Millisecond {
			t.Fatalf("%v, while the lease is over in 10ms", d)
		}
		if d := s.next(answer{left: 10 * time.Millisecond}, true); d > 12*time.Millisecond {
			t.Fatalf("%v, while the lease is over in 10ms", d)
		}
		if d := s.next(answer{left: time.Hour}, true); d < drowsy/2 || d > drowsy {
			t.Fatalf("%v, when it will be notified", d)
		}
		if d := s.next(answer{}, true); d > poll {
			t.Fatalf("%v, when nothing is known", d)
		}
		s.restart()
		if d := s.next(answer{left: time.Hour}, false); d > firstSleep {
			t.Fatalf("%v, after it was woken", d)
		}
		if d := newSleep(firstSleep, minPoll, drowsy).next(answer{left: 1}, false); d < leastSleep {
			t.Fatalf("%v is no sleep", d)
		}
	}
}

// said is an error of PostgreSQL.
type said string

func (s said) Error() string    { return "said " + string(s) }
func (s said) SQLState() string { return string(s) }

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err              error
		passing, refused bool // on PostgreSQL
		sqlite           bool // passing on SQLite
	}{
		{said("40001"), true, true, true},
		{said("40P01"), true, true, true},
		{said("55P03"), true, true, true},
		{said("53300"), true, true, true},
		{said("57P01"), true, false, true},
		{said("57P03"), true, false, true},
		{said("08006"), true, false, true},
		{said("42P01"), false, true, false},
		{said("25006"), false, true, false},
		{said("28P01"), false, true, false},
		{&noAnswer{time.Second, errors.New("x")}, true, false, true},
		{errors.New("connection refused"), true, false, false},
		{errors.New("database is locked (5) (SQLITE_BUSY)"), true, true, true},
		{errors.New("database table is locked"), true, true, true},
		{errors.New("no such table: locks (1)"), true, false, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			postgres, sqlite := &Locker{opts: Options{Dialect: PostgreSQL}}, &Locker{
				opts: Options{Dialect: SQLite},
			}
			if postgres.passing(err) != c.passing || refused(err) != c.refused ||
				sqlite.passing(err) != c.sqlite {
				t.Errorf("%v: passing %v, refused %v, passing on SQLite %v; want %v, %v, %v", err,
					postgres.passing(err), refused(err), sqlite.passing(err), c.passing, c.refused,
					c.sqlite)
			}
		}
	}
}
