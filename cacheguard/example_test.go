package cacheguard_test

import (
	"context"
	"database/sql"
	"errors"
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

// An expensive load, wrapped.
func Example() {
	m, _ := miniredis.Run() // a Redis for this example
	defer m.Close()
	ctx, addr := context.Background(), m.Addr()

	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	store, err := redisstore.New(rdb, redisstore.Options{}) // one for each process
	if err != nil {
		panic(err)
	}
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", TTL: 10 * time.Minute})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	for range 3 {
		p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) { return db.Product(ctx, "42") })
		fmt.Println(p.Name, err)
	}
	// Output:
	// origin: select 42
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

// What does not exist is remembered as well, for NegativeTTL: look-ups of things that aren't there don't reach the
// origin each time.
func ExampleCache_Get_notFound() {
	products := newProducts()
	defer products.Close()
	ctx, loads := context.Background(), 0

	load := func(ctx context.Context) (Product, error) {
		loads++
		p, err := db.Product(ctx, "no-such-thing")
		if errors.Is(err, sql.ErrNoRows) {
			return p, cacheguard.ErrNotFound
		}
		return p, err
	}
	for range 3 {
		_, err := products.Get(ctx, "no-such-thing", load)
		fmt.Println(errors.Is(err, cacheguard.ErrNotFound))
	}
	fmt.Println("loads:", loads)
	// Output:
	// true
	// true
	// true
	// loads: 1
}

// An empty map from the origin means "nothing there", and is kept as briefly as that.
func ExampleOptions_empty() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	stock, err := cacheguard.New(store, cacheguard.Options[map[string]int]{
		Name:        "stock",
		TTL:         time.Hour,
		NegativeTTL: 5 * time.Second,
		Empty:       func(m map[string]int) bool { return len(m) == 0 },
	})
	if err != nil {
		panic(err)
	}
	defer stock.Close()

	_, err = stock.Get(context.Background(), "warehouse-9", func(context.Context) (map[string]int, error) {
		return map[string]int{}, nil
	})
	fmt.Println(err)
	// Output: cacheguard: not found
}

// Commit to the origin, then invalidate: a load that read the origin before the commit can't store what it read.
func ExampleCache_Invalidate() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	if _, err := db.Rename(ctx, "42", "desk lamp"); err != nil {
		panic(err)
	}
	if err := products.Invalidate(ctx, "42"); err != nil {
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

// A load may decide how long its own result is kept, or that it is not.
func ExampleCache_GetEntry() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	r, err := products.GetEntry(ctx, "42", func(ctx context.Context, _ cacheguard.Result[Product]) (cacheguard.Entry[Product], error) {
		p, err := db.Product(ctx, "42")
		if p.Name == "" {
			return cacheguard.Entry[Product]{NoStore: true}, cacheguard.ErrNotFound // not remembered either
		}
		return cacheguard.Entry[Product]{Value: p, TTL: 30 * time.Second}, err
	})
	fmt.Println(r.Value.Name, r.Status, r.FreshFor.Round(time.Second), err)
	// Output:
	// origin: select 42
	// lamp loaded 30s <nil>
}

// Shutdown lets running loads finish and store; the store is closed after the caches.
func ExampleCache_Shutdown() {
	products := newProducts()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := products.Shutdown(ctx); err != nil {
		fmt.Println("some loads were cut short:", err)
	}
	_, err := products.Peek(ctx, "42")
	fmt.Println(err)
	// Output: cacheguard: cache is closed
}

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

// One budget of loads for all processes and several caches: ten thousand cold keys can't do what one hot key isn't
// allowed to.
func ExampleNewFleetLimiter() {
	store := memstore.New(memstore.Options{})
	database, err := cacheguard.NewFleetLimiter(store, "database", 20, 1000) // 20 at a time, 1000 wait in each process
	if err != nil {
		panic(err)
	}
	products, err := cacheguard.New(store, cacheguard.Options[Product]{Name: "product", Limiter: database})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	p, err := products.Get(context.Background(), "42", func(ctx context.Context) (Product, error) { return db.Product(ctx, "42") })
	fmt.Println(p.Name, err)
	// Output:
	// origin: select 42
	// lamp <nil>
}
