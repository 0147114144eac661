package sqllock

import (
	"embed"
	"strings"
	"time"
)

//go:embed postgresql/*.sql sqlite/*.sql
var files embed.FS

// statements are what is said to a database: the files of this package, for a certain table. Each is carried out by
// itself, and so is a transaction of its own.
type statements struct {
	unit time.Duration // of durations

	schema  string
	look    string // before acquire; empty: acquire does it
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
			schema:  read("postgresql/schema.sql", table),
			acquire: bare("postgresql/acquire.sql", table),
			want:    bare("postgresql/want.sql", table),
			take:    bare("postgresql/take.sql", table),
			renew:   bare("postgresql/renew.sql", table),
			release: bare("postgresql/release.sql", table),
			clean:   bare("postgresql/clean.sql", table),
		}
	default:
		return statements{
			unit:    time.Millisecond,
			schema:  read("sqlite/schema.sql", table),
			look:    bare("sqlite/look.sql", table),
			acquire: bare("sqlite/acquire.sql", table),
			take:    bare("sqlite/take.sql", table),
			renew:   bare("sqlite/renew.sql", table),
			release: bare("sqlite/release.sql", table),
			clean:   bare("sqlite/clean.sql", table),
		}
	}
}

// read returns a file with the table that is meant. Its name is quoted, so that it may be any word.
func read(file, table string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	quoted := `"` + strings.ReplaceAll(table, ".", `"."`) + `"`
	return strings.ReplaceAll(string(text), defaultTable, quoted)
}

// bare is read without comments, for they would be sent each time.
func bare(file, table string) string {
	var b strings.Builder
	for line := range strings.Lines(read(file, table)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// lasting is a lease in the database's unit, a little more than what its holder reckons with: for the unit, and for
// clocks that don't go equally fast.
func (s statements) lasting(lease time.Duration) int64 {
	return int64((lease+lease/driftShare)/s.unit) + 2
}

// driftShare says by what share of a lease two clocks may come apart while it lasts: a hundredth, as in Redlock. Clocks
// that are being slewed differ by a thousandth.
const driftShare = 100
