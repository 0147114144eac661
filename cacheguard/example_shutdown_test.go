package cacheguard_test

import (
	"context"
	"fmt"
	"time"
)

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
