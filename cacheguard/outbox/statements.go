package outbox

import (
	"embed"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
)

//go:embed postgresql/*.sql sqlite/*.sql
var files embed.FS

// statements are what is said to a database: the files of this package, for a certain table.
type statements struct {
	schema  string
	write   string
	read    string
	remove  string
	refuse  string
	last    string
	pending string
	backlog string
}

func statementsFor(o Options) statements {
	dir, write := "sqlite/", "write.sql"
	if o.Dialect == sqllock.PostgreSQL {
		dir = "postgresql/"
		if o.Listen != nil {
			write = "write_notified.sql"
		}
	}
	said := func(file string) string { return bare(dir+file, o.Table) }
	return statements{
		schema: read(dir+"schema.sql", o.Table), write: said(write), read: said("read.sql"), remove: said("remove.sql"),
		refuse: said("refuse.sql"), last: said("last.sql"), pending: said("pending.sql"), backlog: said("backlog.sql"),
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
