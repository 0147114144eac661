package cacheguard_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// The process-local tier holds a million ids altogether. Each call that the tier answers gets a
// list of its own, which the caller may sort.
func ExampleLocal() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	related, err := cacheguard.New(store, cacheguard.Options[[]int]{
		Name: "related",
		Local: cacheguard.Local[[]int]{
			Entries: 1_000_000,
			Weigh:   func(_ string, ids []int) uint32 { return uint32(len(ids)) },
			Clone:   slices.Clone[[]int],
		},
	})
	if err != nil {
		panic(err)
	}
	defer related.Close()
	ctx := context.Background()
	load := func(context.Context) ([]int, error) { return []int{3, 1, 2}, nil }

	for range 3 {
		ids, err := related.Get(ctx, "42", load)
		fmt.Println(ids, err)
		if found, ok := related.Local("42"); ok {
			slices.Sort(found.Value)
		}
	}
	// Output:
	// [3 1 2] <nil>
	// [3 1 2] <nil>
	// [3 1 2] <nil>
}
