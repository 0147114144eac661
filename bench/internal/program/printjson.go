package program

import (
	"encoding/json"
	"io"
)

// printJSON is how every command prints for machines.
func printJSON(w io.Writer, what any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(what)
}
