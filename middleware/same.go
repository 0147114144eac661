package middleware

import (
	"bytes"
	"maps"
	"slices"
)

// sameToClients reports whether two responses are equal except for fields with a time, such as
// Date. Two variants for different requests are not two versions of one response, so sameToClients
// returns true for them.
func sameToClients(a, b *response) bool {
	if a == nil || b == nil || a.selected != b.selected {
		return true
	}
	x, y := maps.Clone(a.header), maps.Clone(b.header)
	for _, field := range []string{"Date", "Age", "Expires"} {
		delete(x, field)
		delete(y, field)
	}
	return a.status == b.status && bytes.Equal(a.body, b.body) && maps.EqualFunc(x, y, slices.Equal)
}
