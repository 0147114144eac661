package cacheguard_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// loadProduct returns the load function of a product. A repository has one for each of its caches.
func loadProduct(id string) cacheguard.LoadFunc[Product] {
	return func(ctx context.Context) (Product, error) { return db.Product(ctx, id) }
}

// An operator's button loads a product again although the stored one is fresh.
func ExampleCache_Refresh() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "42", Product{ID: "42", Name: "old lamp"})

	p, err := products.Refresh(ctx, "42", loadProduct("42"))
	fmt.Println(p.Name, err)
	r, err := products.Peek(ctx, "42")
	fmt.Println(r.Value.Name, r.Status, err)
	// Output:
	// origin: select 42
	// lamp <nil>
	// lamp hit <nil>
}

// A nightly job loads every product again. A product that has not changed is kept for longer.
func ExampleCache_RefreshEntry() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "42", Product{ID: "42", Name: "lamp"})

	var load cacheguard.EntryFunc[Product] = func(
		ctx context.Context, prev cacheguard.Result[Product],
	) (cacheguard.Entry[Product], error) {
		p, err := db.Product(ctx, "42")
		if err == nil && p == prev.Value {
			return cacheguard.Entry[Product]{NotModified: true, TTL: 24 * time.Hour}, nil
		}
		return cacheguard.Entry[Product]{Value: p}, err
	}
	r, err := products.RefreshEntry(ctx, "42", load)
	fmt.Println(r.Value.Name, r.FreshFor > 12*time.Hour, err)
	// Output:
	// origin: select 42
	// lamp true <nil>
}
