package cacheguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

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
	m.SetTTL("product:42", 10*time.Second)
	ctx, rdb := context.Background(), redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	products := newProducts()
	defer products.Close()

	res, err := products.GetEntry(ctx, "42", func(ctx context.Context, _ cacheguard.Result[Product]) (cacheguard.Entry[Product], error) {
		var old Product
		b, err := rdb.Get(ctx, "product:42").Bytes() // where the former cache has it
		if err == nil && json.Unmarshal(b, &old) == nil {
			if left, err := rdb.PTTL(ctx, "product:42").Result(); err == nil && left > 0 {
				return cacheguard.Entry[Product]{Value: old, TTL: left}, nil
			}
		}
		p, err := db.Product(ctx, "42")
		return cacheguard.Entry[Product]{Value: p}, err
	})
	fmt.Println(res.Value.Name, res.FreshFor > 9*time.Second, res.FreshFor <= 10*time.Second, err)
	// Output: lamp true true <nil>
}
