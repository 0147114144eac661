package sqllock

import (
	"embed"
	"time"

	"github.com/cacheguard/cacheguard/internal/sqltable"
)

//go:embed postgresql/*.sql sqlite/*.sql
var embedded embed.FS

var files = sqltable.Files{FS: embedded, Name: defaultTable}

// statements are the SQL statements of this package's files, for a certain table. Each statement
// runs alone, so each is a separate transaction.
type statements struct {
	unit time.Duration // the unit of durations in the statements

	schema  string
	look    string // runs before acquire; empty: acquire includes it
	acquire string
	want    string // empty: there are no notifications
	take    string
	renew   string
	release string
	clean   string
}

func statementsFor(d Dialect, table string) statements {
	switch d {
	case PostgreSQL:
		return statements{
			unit:    time.Microsecond,
			schema:  files.Read("postgresql/schema.sql", table),
			acquire: files.Bare("postgresql/acquire.sql", table),
			want:    files.Bare("postgresql/want.sql", table),
			take:    files.Bare("postgresql/take.sql", table),
			renew:   files.Bare("postgresql/renew.sql", table),
			release: files.Bare("postgresql/release.sql", table),
			clean:   files.Bare("postgresql/clean.sql", table),
		}
	default:
		return statements{
			unit:    time.Millisecond,
			schema:  files.Read("sqlite/schema.sql", table),
			look:    files.Bare("sqlite/look.sql", table),
			acquire: files.Bare("sqlite/acquire.sql", table),
			take:    files.Bare("sqlite/take.sql", table),
			renew:   files.Bare("sqlite/renew.sql", table),
			release: files.Bare("sqlite/release.sql", table),
			clean:   files.Bare("sqlite/clean.sql", table),
		}
	}
}

// lasting returns a lease in the database's unit. This lease is a little longer than the holder's
// own lease, because of rounding, and because clocks run at different rates.
func (s statements) lasting(lease time.Duration) int64 {
	return int64((lease+lease/driftShare)/s.unit) + 2
}

// driftShare is the limit for the drift between two clocks during a lease: a hundredth of the
// lease, as in Redlock. While a clock is slewed, it differs from other clocks by a thousandth.
const driftShare = 100
