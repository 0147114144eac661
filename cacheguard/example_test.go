package cacheguard_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// Product is what the examples cache.
type Product struct {
	ID   string
	Name string
}

// db stands for a database.
var db shop

type shop struct{}

func (shop) Product(_ context.Context, id string) (Product, error) {
	if id != "42" {
		return Product{}, sql.ErrNoRows
	}
	fmt.Println("origin: select", id)
	return Product{ID: id, Name: "lamp"}, nil
}

func (shop) Rename(_ context.Context, id, name string) (Product, error) {
	return Product{ID: id, Name: name}, nil
}

// quietShop is a database that prints nothing when it is asked. A Redis that is slow for once costs
// one more load.
type quietShop struct{}

func (quietShop) Product(context.Context, string) (Product, error) {
	return Product{Name: "lamp"}, nil
}

// An expensive load, wrapped.
func Example() {
	var db quietShop // in place of a database

	m, _ := miniredis.Run() // a Redis for this example
	defer m.Close()
	ctx, addr := context.Background(), m.Addr()

	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	store, err := redisstore.New(rdb, redisstore.Options{}) // one for each process
	if err != nil {
		panic(err)
	}
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[Product]{
		Name: "product", TTL: 10 * time.Minute,
	})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	for range 3 {
		p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
			return db.Product(ctx, "42")
		})
		fmt.Println(p.Name, err)
	}
	// Output:
	// lamp <nil>
	// lamp <nil>
	// lamp <nil>
}

// newProducts is a cache without Redis, for the examples that are not about it.
func newProducts() *cacheguard.Cache[Product] {
	store := memstore.New(memstore.Options{})
	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product"})
	if err != nil {
		panic(err)
	}
	return products
}
