//go:build !race

package statuspage_test

import (
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/statuspage"
)

// A hit costs no allocation more with the page, of the process-local tier or of the store.
func TestHitsCostNothingMore(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	if err := store.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, entries := range []int{0, 10} {
		cost := func(o cacheguard.Observer) float64 {
			c, err := cacheguard.New(store, cacheguard.Options[int]{
				Name: "stock", Observer: o, Local: cacheguard.Local[int]{Entries: entries},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			load := returning(1)
			hit := func() { _, _ = c.Get(t.Context(), "k", load) }
			hit()
			return testing.AllocsPerRun(10_000, hit)
		}
		if without, with := cost(nil), cost(statuspage.New(statuspage.Options{})); with > without {
			t.Errorf("local tier of %d: %v allocations with the page, %v without", entries, with,
				without)
		}
	}
}
