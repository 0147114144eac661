package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// With stale windows nobody waits for a refresh, and an origin that fails is not felt.
func ExampleOptions_staleWindows() {
	store := memstore.New(memstore.Options{})
	products, err := cacheguard.New(store, cacheguard.Options[Product]{
		Name: "product", TTL: time.Millisecond, // for this example; else minutes
		StaleWhileRevalidate: time.Minute, // served at once while one process refreshes
		StaleIfError:         time.Hour,   // served when the origin fails
		EarlyRefresh:         1,           // hot keys are refreshed before they expire
		Local:                cacheguard.Local[Product]{Entries: 10_000},
	})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "42", Product{ID: "42", Name: "lamp"})
	time.Sleep(5 * time.Millisecond) // its TTL is over

	res, err := products.GetResult(ctx, "42", func(context.Context) (Product, error) {
		return Product{}, errors.New("the database is down")
	})
	fmt.Println(res.Value.Name, res.Status, err)
	// Output: lamp stale <nil>
}

// A soft invalidation: the next read refreshes the value, and nobody waits for it.
func ExampleCache_MarkStale() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store,
		cacheguard.Options[Product]{Name: "product", StaleWhileRevalidate: time.Minute})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "42", Product{Name: "lamp"})

	if err := products.MarkStale(ctx, "42"); err != nil {
		panic(err)
	}
	r, err := products.GetResult(ctx, "42", func(context.Context) (Product, error) {
		return Product{Name: "desk lamp"}, nil
	})
	fmt.Println(r.Value.Name, r.Status, err)
	// Output: lamp stale <nil>
}
