// Package sqltable puts the name of a table that a user chooses into SQL files.
package sqltable

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

// Most is how many bytes a name has at most: as PostgreSQL has for an identifier, and for a
// channel, which is called like the table.
const Most = 63

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// Wrong returns what is wrong with the name of a table, or nil. The error goes on where its reader
// has been told of what.
func Wrong(table string) error {
	switch {
	case len(table) > Most:
		return fmt.Errorf("has %d bytes, more than %d", len(table), Most)
	case !name.MatchString(table):
		return fmt.Errorf("is %q; it has to be a name of letters, digits and underscores, or two with a dot between", table)
	}
	return nil
}

// Files are SQL files in which a table has a certain name.
type Files struct {
	FS   embed.FS
	Name string
}

// Read returns a file with the table that is meant. Its name is quoted, so that it may be any word.
func (f Files) Read(file, table string) string {
	text, err := f.FS.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	quoted := `"` + strings.ReplaceAll(table, ".", `"."`) + `"`
	return strings.ReplaceAll(string(text), f.Name, quoted)
}

// Bare is Read without comments, for they would be sent each time.
func (f Files) Bare(file, table string) string {
	var b strings.Builder
	for line := range strings.Lines(f.Read(file, table)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}
