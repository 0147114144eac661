package sqllock

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// said is an error of PostgreSQL.
type said string

func (s said) Error() string { return "said " + string(s) }

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
