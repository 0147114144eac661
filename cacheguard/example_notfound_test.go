package cacheguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// What does not exist is remembered as well, for NegativeTTL: look-ups of things that aren't there
// don't reach the origin each time.
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

// Many users have no settings. Without the cache, each look-up of such a user would be a query.
// With it, there is one query per NegativeTTL. The user's id is part of the key, so that no user
// gets the settings of another.
func Example_perUser() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	settings, err := cacheguard.New(store, cacheguard.Options[Settings]{
		Name: "settings", TTL: time.Minute, NegativeTTL: 10 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	defer settings.Close()
	ctx := context.Background()

	of := func(user int) (Settings, error) {
		return settings.Get(ctx, fmt.Sprint("user:", user), func(
			ctx context.Context,
		) (Settings, error) {
			fmt.Println("origin: settings of", user)
			if user != 7 {
				return Settings{}, fmt.Errorf("user %d: %w", user, cacheguard.ErrNotFound)
			}
			return Settings{Theme: "dark"}, nil
		})
	}
	for _, user := range []int{7, 8, 8, 7, 8} {
		switch s, err := of(user); {
		case errors.Is(err, cacheguard.ErrNotFound):
			fmt.Println(user, "has the defaults")
		case err == nil:
			fmt.Println(user, "has", s.Theme)
		}
	}
	// Output:
	// origin: settings of 7
	// 7 has dark
	// origin: settings of 8
	// 8 has the defaults
	// 8 has the defaults
	// 7 has dark
	// 8 has the defaults
}

// Settings is what a user may have changed.
type Settings struct{ Theme string }

// An empty map from the origin means "does not exist", and is remembered only for NegativeTTL.
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

	_, err = stock.Get(context.Background(), "warehouse-9", func(
		context.Context,
	) (map[string]int, error) {
		return map[string]int{}, nil
	})
	fmt.Println(err)
	// Output: cacheguard: not found
}

var errRetired = errors.New("product is retired")

// Only the process of a load has its error value. If callers test for an error with errors.Is, list
// the error in Options.Errors. Then the test works in all processes.
func ExampleOptions_errors() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	open := func() *cacheguard.Cache[Product] { // as each process does
		products, err := cacheguard.New(store,
			cacheguard.Options[Product]{
				Name: "product", ErrorTTL: time.Minute, Errors: []error{errRetired},
			})
		if err != nil {
			panic(err)
		}
		return products
	}
	here, there := open(), open()
	defer here.Close()
	defer there.Close()
	ctx := context.Background()

	load := func(context.Context) (Product, error) {
		return Product{}, fmt.Errorf("product 42: %w", errRetired)
	}
	_, err := here.Get(ctx, "42", load)
	fmt.Println(errors.Is(err, errRetired))
	_, err = there.Get(ctx, "42", load) // is answered with the other process' error, for ErrorTTL
	fmt.Println(errors.Is(err, errRetired), err)
	// Output:
	// true
	// true cacheguard: load of "42" failed in another process: product 42: product is retired
}
