package cacheguard_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A client that has made a change sees it with its next request, although the invalidation is still
// on its way. The token travels as text, in a cookie for instance.
func ExampleCommitted() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[string]{Name: "product"})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	ctx, name := context.Background(), "lamp"
	show := func(ctx context.Context) {
		load := func(context.Context) (string, error) { return name, nil }
		found, err := products.Get(ctx, "42", load)
		fmt.Println(found, err)
	}
	show(ctx)

	name = "desk lamp" // committed
	made, err := cacheguard.Committed(ctx, store, "product")
	if err != nil {
		panic(err)
	}
	cookie := made.String()

	show(ctx) // another client
	token, err := cacheguard.ParseToken(cookie)
	if err != nil {
		panic(err) // a handler would ignore a broken cookie
	}
	show(cacheguard.NotOlderThan(ctx, token))
	// Output:
	// lamp <nil>
	// lamp <nil>
	// desk lamp <nil>
}

// A value that is copied to another key is as old as its source. Otherwise a client with a token
// would get the copy, although the copy was read before the change.
func ExampleEntry_NotNewerThan() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[string]{Name: "product"})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	ctx, name := context.Background(), "lamp"
	_, _ = products.Get(ctx, "42", func(context.Context) (string, error) { return name, nil })

	name = "desk lamp" // committed
	token, err := cacheguard.Committed(ctx, store, "product")
	if err != nil {
		panic(err)
	}
	load := func(
		ctx context.Context, _ cacheguard.Result[string],
	) (e cacheguard.Entry[string], err error) {
		if source, err := products.Peek(ctx, "42"); err == nil &&
			source.Status == cacheguard.StatusHit {
			e.Value = source.Value
			return e.NotNewerThan(source), nil
		}
		e.Value = name
		return e, nil
	}
	for _, ctx := range []context.Context{ctx, cacheguard.NotOlderThan(ctx, token)} {
		res, err := products.GetEntry(ctx, "offer of the day", load)
		fmt.Println(res.Value, err)
	}
	// Output:
	// lamp <nil>
	// desk lamp <nil>
}

// Local takes no context, so a caller with a token checks the result, and asks the store if the
// result may be too old.
func ExampleCache_Local() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[Product]{
		Name:  "product",
		Local: cacheguard.Local[Product]{Entries: 1000, TTL: 10 * time.Second},
	})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	product := func(ctx context.Context) (Product, error) {
		r, ok := products.Local("42")
		if ok && r.NotOlderThan(products.Demanded(ctx)) {
			return r.Value, nil
		}
		return products.Get(ctx, "42", loadProduct("42"))
	}
	for range 2 {
		p, err := product(context.Background())
		fmt.Println(p.Name, err)
	}
	// Output:
	// origin: select 42
	// lamp <nil>
	// lamp <nil>
}
