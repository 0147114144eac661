package cacheguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A load may decide how long its own result is kept, or that the result is not stored.
func ExampleCache_GetEntry() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	r, err := products.GetEntry(ctx, "42", func(
		ctx context.Context, _ cacheguard.Result[Product],
	) (cacheguard.Entry[Product], error) {
		p, err := db.Product(ctx, "42")
		if errors.Is(err, sql.ErrNoRows) {
			// Not remembered either.
			return cacheguard.Entry[Product]{NoStore: true}, cacheguard.ErrNotFound
		}
		return cacheguard.Entry[Product]{Value: p, TTL: 30 * time.Second}, err
	})
	fmt.Println(r.Value.Name, r.Status, r.FreshFor.Round(10*time.Second), err)
	// Output:
	// origin: select 42
	// lamp loaded 30s <nil>
}

// SetEntry stores a value that the program already has, with a lifetime and tags of its own.
func ExampleCache_SetEntry() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	err := products.SetEntry(ctx, "42", cacheguard.Entry[Product]{
		Value: Product{ID: "42", Name: "lamp"}, TTL: time.Hour, Tags: []string{"category:light"},
	})
	r, _ := products.Peek(ctx, "42")
	fmt.Println(r.Value.Name, r.FreshFor.Round(time.Minute), err)
	// Output: lamp 1h0m0s <nil>
}

// A load sees the previous value. So if the origin says "not modified", it needn't send the value
// again.
func ExampleEntry_notModified() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	load := func(
		_ context.Context, prev cacheguard.Result[Product],
	) (cacheguard.Entry[Product], error) {
		// A conditional request would be answered with 304.
		if prev.Status != cacheguard.StatusMiss {
			return cacheguard.Entry[Product]{NotModified: true}, nil
		}
		// For 24 hours more than its TTL.
		return cacheguard.Entry[Product]{Value: Product{Name: "lamp"}, Keep: 24 * time.Hour}, nil
	}
	for range 2 {
		r, err := products.GetEntry(ctx, "42", load)
		fmt.Println(r.Value.Name, r.Status, err)
		_ = products.MarkStale(ctx, "42") // without stale windows: the next read loads
	}
	// Output:
	// lamp loaded <nil>
	// lamp loaded <nil>
}
