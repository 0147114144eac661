//go:build !race

package flight

import "testing"

// A flight is one allocation, and the channel that those who join it wait on is another one. The
// race detector allocates too.
func TestAllocations(t *testing.T) {
	var g Group[int]
	alone := testing.AllocsPerRun(1000, func() {
		f, _ := g.Join("key", 0)
		f.Land(1)
	})
	shared := testing.AllocsPerRun(1000, func() {
		f, _ := g.Join("key", 0)
		for range 10 {
			g.Join("key", 0)
		}
		f.Land(1)
	})
	if alone > 1 || shared > 2 {
		t.Errorf("a flight allocates %v times, one that is joined %v times; want 1 and 2", alone,
			shared)
	}
}
