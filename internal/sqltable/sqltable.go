// Package sqltable inserts the name of a table, which a user chooses, into SQL files.
package sqltable

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

// Most is the largest number of bytes in a name. It is PostgreSQL's limit for an identifier and for
// a channel. The channel has the table's name.
const Most = 63

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// Wrong returns an error if the name of a table is wrong, or nil. The caller adds the purpose of
// the name in front of the error's text.
func Wrong(table string) error {
	switch {
	case len(table) > Most:
		return fmt.Errorf("has %d bytes, more than %d", len(table), Most)
	case !name.MatchString(table):
		return fmt.Errorf(
			"is %q; it has to be a name of letters, digits and underscores, or two with a dot between",
			table)
	}
	return nil
}

// Files are SQL files in which a table has a certain name.
type Files struct {
	FS   embed.FS
	Name string
}

// Read returns a file with the user's table name. The name is quoted, so it may be any word.
func (f Files) Read(file, table string) string {
	text, err := f.FS.ReadFile(file)
	if err != nil {
		panic(err) // the files are embedded, so this can't happen
	}
	quoted := `"` + strings.ReplaceAll(table, ".", `"."`) + `"`
	return strings.ReplaceAll(string(text), f.Name, quoted)
}

// Bare is Read without comments, which would otherwise be sent with each statement.
func (f Files) Bare(file, table string) string {
	var b strings.Builder
	for line := range strings.Lines(f.Read(file, table)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}
