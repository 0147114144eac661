package middleware

import (
	"bytes"
	"maps"
	"slices"
)

// sameToClients reports whether two responses are the same to those who get them: but for fields
// that tell the time, such as Date. Of those that vary, one for other requests is no other version
// of this one.
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
