package cacheguard_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Commit to the origin, then invalidate: a load that read the origin before the commit can't store
// what it read.
func ExampleCache_Invalidate() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	if _, err := db.Rename(ctx, "42", "desk lamp"); err != nil {
		panic(err)
	}
	switch err := products.Invalidate(ctx, "42"); {
	case errors.Is(err, cacheguard.ErrPending):
		fmt.Println("this process shows the new name, others will when Redis is back")
	case err != nil:
		fmt.Println("the old name may be seen until its TTL is over:", err)
	}
	// Output:
}

// Update writes the origin and the cache, safe with any number of writers.
func ExampleCache_Update() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	p, err := products.Update(ctx, "42", func(ctx context.Context) (Product, error) {
		return db.Rename(ctx, "42", "desk lamp")
	})
	fmt.Println(p.Name, err)
	found, err := products.Peek(ctx, "42")
	fmt.Println(found.Value.Name, found.Status, err)
	// Output:
	// desk lamp <nil>
	// desk lamp hit <nil>
}

// A write says what its result depends on, as a load does with GetEntry. Without a word about tags,
// the tags that the key had stay.
func ExampleCache_UpdateEntry() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	r, err := products.UpdateEntry(ctx, "42", func(
		ctx context.Context,
	) (cacheguard.Entry[Product], error) {
		p, err := db.Rename(ctx, "42", "desk lamp")
		return cacheguard.Entry[Product]{Value: p, Tags: []string{"category:lamps"}}, err
	})
	fmt.Println(r.Value.Name, r.Status, err)
	if _, err := products.Update(ctx, "42", func(ctx context.Context) (Product, error) {
		return db.Rename(ctx, "42", "floor lamp")
	}); err != nil {
		panic(err)
	}
	if err := products.InvalidateTags(ctx, "category:lamps"); err != nil {
		panic(err)
	}
	r, err = products.Peek(ctx, "42")
	fmt.Println(r.Status, err)
	// Output:
	// desk lamp loaded <nil>
	// miss <nil>
}
