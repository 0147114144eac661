package cacheguard_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A page is made of many things, and has a tag for each of them. When one thing changes,
// InvalidateTags invalidates every page with its tag. The program needn't know these pages.
func ExampleCache_InvalidateTags() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := cacheguard.New(store, cacheguard.Options[string]{Name: "page", TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	ctx := context.Background()

	page := func(path string, products ...string) {
		r, err := pages.GetEntry(ctx, path, func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			tags := []string{"layout"}
			for _, id := range products {
				tags = append(tags, "product:"+id)
			}
			return cacheguard.Entry[string]{Value: "<h1>" + path, Tags: tags}, nil
		})
		fmt.Println(r.Value, r.Status, err)
	}
	page("/lamps", "42", "43")
	page("/chairs", "7")
	if err := pages.InvalidateTags(ctx, "product:42"); err != nil {
		fmt.Println("old pages may be seen until their TTL is over:", err)
	}
	page("/lamps", "42", "43")
	page("/chairs", "7")
	// Output:
	// <h1>/lamps loaded <nil>
	// <h1>/chairs loaded <nil>
	// <h1>/lamps loaded <nil>
	// <h1>/chairs hit <nil>
}

// A deployment changes what all values look like: everything is invalidated, in one step.
func ExampleCache_InvalidateAll() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "42", Product{Name: "lamp"})

	if err := products.InvalidateAll(ctx); err != nil {
		panic(err)
	}
	r, err := products.Peek(ctx, "42")
	fmt.Println(r.Status, err)
	// Output: miss <nil>
}
