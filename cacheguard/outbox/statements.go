package outbox

import (
	"embed"

	"github.com/cacheguard/cacheguard/cacheguard/lock/sqllock"
	"github.com/cacheguard/cacheguard/internal/sqltable"
)

//go:embed postgresql/*.sql sqlite/*.sql
var embedded embed.FS

var files = sqltable.Files{FS: embedded, Name: defaultTable}

// statements are the SQL statements of this package's files, for a certain table.
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
	said := func(file string) string { return files.Bare(dir+file, o.Table) }
	return statements{
		schema: files.Read(dir+"schema.sql", o.Table), write: said(write), read: said("read.sql"),
		remove: said("remove.sql"),
		refuse: said("refuse.sql"), last: said("last.sql"), pending: said("pending.sql"),
		backlog: said("backlog.sql"),
	}
}
