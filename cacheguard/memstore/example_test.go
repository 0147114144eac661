package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A program that runs in one process needs no Redis. All of its caches share one store, which takes
// 64 MiB at most. Close the store after the caches.
func Example() {
	store := memstore.New(memstore.Options{MaxBytes: 64 << 20})
	defer store.Close()
	stock, err := cacheguard.New(store, cacheguard.Options[int]{Name: "stock", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer stock.Close()

	for range 2 {
		n, err := stock.Get(context.Background(), "42", func(context.Context) (int, error) {
			fmt.Println("origin: select 42")
			return 7, nil
		})
		fmt.Println(n, err)
	}
	// Output:
	// origin: select 42
	// 7 <nil>
	// 7 <nil>
}
