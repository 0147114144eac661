package cacheguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
)

// A new cache begins in shadow. Callers get the results of their loads, and the cache's answers are
// compared with these results.
func ExampleSwitch_shadow() {
	var mode cacheguard.Switch // Options.Switch: &mode
	if err := mode.Set(cacheguard.ModeShadow); err != nil {
		panic(err)
	}
	fmt.Println(mode.Mode())
	// Output: shadow
}

// While a new cache is still empty, its loads may read the values that the former cache has stored
// under other keys.
func Example_oldKeys() {
	m, _ := miniredis.Run() // a Redis for this example
	defer m.Close()
	_ = m.Set("product:42", `{"ID":"42","Name":"lamp"}`)
	m.SetTTL("product:42", 10*time.Second)
	ctx, rdb := context.Background(),
		redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	products := newProducts()
	defer products.Close()

	res, err := products.GetEntry(ctx, "42", func(
		ctx context.Context, _ cacheguard.Result[Product],
	) (cacheguard.Entry[Product], error) {
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

// Replace a SETNX lock around a load by Get. Replace a SETNX lock around anything else by a lock of
// package redislock.
func Example_fromSETNX() {
	m, _ := miniredis.Run() // a Redis for this example
	defer m.Close()
	_ = m.Set("product:42", `{"ID":"42","Name":"old lamp"}`)
	ctx, rdb := context.Background(),
		redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	decode := func(b []byte) (p Product, err error) {
		err = json.Unmarshal(b, &p)
		return p, err
	}
	former := func() (Product, error) {
		for { // before
			if b, err := rdb.Get(ctx, "product:42").Bytes(); err == nil {
				return decode(b)
			}
			ok, err := rdb.SetNX(ctx, "lock:product:42", "1", 10*time.Second).Result()
			if err != nil || ok {
				break // load, then SET product:42 and DEL lock:product:42
			}
			time.Sleep(50 * time.Millisecond)
		}
		return db.Product(ctx, "42")
	}
	old, err := former()
	fmt.Println(old.Name, err)

	products := newProducts()
	defer products.Close()
	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
		return db.Product(ctx, "42")
	})
	fmt.Println(p.Name, err)

	locker, err := redislock.New(rdb, redislock.Options{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	send := func() error {
		// locker, err := redislock.New(rdb, redislock.Options{})
		held, err := locker.Lock(ctx, "invoices")
		if err != nil {
			return err
		}
		defer held.Unlock(ctx)
		return nil // send the invoices here
	}
	fmt.Println(send())
	// Output:
	// old lamp <nil>
	// origin: select 42
	// lamp <nil>
	// <nil>
}
