//go:build !race

package frame

import "testing"

// To look at a frame allocates nothing, with tags and without. The race detector allocates.
func TestParseAllocations(t *testing.T) {
	for name, g := range golden {
		f := New(g.header, []byte("value"))
		if n := testing.AllocsPerRun(100, func() { _, _, _ = Parse(f) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
