package cacheguard_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A cache begins in shadow: callers get the result of their loads, and what it would have answered is
// compared with that.
func ExampleSwitch_shadow() {
	var products cacheguard.Switch // Options.Switch: &products
	if err := products.Set(cacheguard.ModeShadow); err != nil {
		panic(err)
	}
	fmt.Println(products.Mode())
	// Output: shadow
}

// While a new cache warms up, loads may read what the former one has stored under its own keys.
func Example_oldKeys() {
	m, _ := miniredis.Run() // a Redis for this example
	defer m.Close()
	_ = m.Set("product:42", `{"ID":"42","Name":"lamp"}`)
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	products := newProducts()
	defer products.Close()

	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
		var old Product
		b, err := rdb.Get(ctx, "product:42").Bytes() // where the former cache has it
		if err == nil && json.Unmarshal(b, &old) == nil {
			return old, nil
		}
		return db.Product(ctx, "42")
	})
	fmt.Println(p.Name, err)
	// Output: lamp <nil>
}
