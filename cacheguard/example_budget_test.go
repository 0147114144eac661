package cacheguard_test

import (
	"context"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// All processes and several caches share one limit of loads. So even ten thousand cold keys start
// at most 20 loads at a time.
func ExampleNewFleetLimiter() {
	store := memstore.New(memstore.Options{})
	// 20 at a time, 1000 wait in each process.
	database, err := cacheguard.NewFleetLimiter(store, "database", 20, 1000)
	if err != nil {
		panic(err)
	}
	products, err := cacheguard.New(store,
		cacheguard.Options[Product]{Name: "product", Limiter: database})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	p, err := products.Get(context.Background(), "42", func(ctx context.Context) (Product, error) {
		return db.Product(ctx, "42")
	})
	fmt.Println(p.Name, err)
	// Output:
	// origin: select 42
	// lamp <nil>
}
