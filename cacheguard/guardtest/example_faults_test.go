package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// Each kind of failure for another key: a panic, a goroutine that ends, and an error for a bulk
// load's missing key.
func ExampleFault() {
	t := &exampleT{}
	defer t.end()
	ctx := context.Background()

	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	only := func(id string) func(string) bool { return func(key string) bool { return key == id } }
	products.Inject(guardtest.Fault{Match: only("1"), Panic: "index out of range"})
	products.Inject(guardtest.Fault{Match: only("2"), Goexit: true})
	products.Inject(guardtest.Fault{Match: only("3"), Err: cacheguard.ErrNotFound})
	cache := guardtest.NewFleet(t, 1, cacheguard.Options[string]{}).Replica(0)

	_, err := cache.Get(ctx, "1", products.Load("1"))
	var thrown *cacheguard.PanicError
	fmt.Println(errors.As(err, &thrown))
	_, err = cache.Get(ctx, "2", products.Load("2"))
	fmt.Println(err)
	_, err = cache.GetEntry(ctx, "3", products.LoadEntry("3"))
	fmt.Println(err)
	found, err := cache.GetMany(ctx, []string{"3", "4"}, products.LoadMany)
	fmt.Println(found, err)
	// Output:
	// true
	// cacheguard: load called runtime.Goexit
	// cacheguard: not found
	// map[4:product 4] <nil>
}

// A query that doesn't look at its context runs on after LoadTimeout. Its caller is answered
// nevertheless, and the origin tells how many queries ran at the same time.
func ExampleOrigin_MostRunning() {
	t := &exampleT{}
	defer t.end()

	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	end := products.Inject(guardtest.Fault{IgnoreContext: true})
	open := products.Hold()
	var events guardtest.Recorder
	cache := guardtest.NewFleet(t, 1,
		cacheguard.Options[string]{
			LoadTimeout: 10 * time.Millisecond, Observer: &events,
		}).Replica(0)

	_, err := cache.Get(context.Background(), "42", products.Load("42"))
	products.Await(1) // the query may begin after its caller was answered
	fmt.Println(errors.Is(err, context.DeadlineExceeded), products.Running())
	open()
	end()
	events.Await(t, cacheguard.EventLoadLate, 1)
	fmt.Println(products.MostRunning(), events.Count(cacheguard.EventLoadLate))
	// Output:
	// true 1
	// 1 1
}

// Callers of three replicas ask at the same moment, through the code under test.
func ExampleTogether() {
	t := &exampleT{}
	defer t.end()

	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	products.Inject(guardtest.Fault{Takes: 50 * time.Millisecond})
	fleet := guardtest.NewFleet(t, 3, cacheguard.Options[string]{})
	guardtest.Together(t, 90, func(i int) {
		if _, err := fleet.Replica(i%3).Get(context.Background(), "42",
			products.Load("42")); err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	})
	answers := fleet.Stampede(context.Background(), "42", 10, products.Load("42"))
	fmt.Println(products.Loads(), answers.Count(cacheguard.StatusHit))
	// Output: 1 30
}

// The network between a program and its Redis fails in four ways, and comes back. With RedisServer
// in the place of the miniredis, a real Redis is behind it.
func ExampleProxy() {
	t := &exampleT{}
	defer t.end()
	ctx := context.Background()
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	proxy := guardtest.NewProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: 100 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	cache := guardtest.NewFleet(t, 1, cacheguard.Options[string]{}, store).Replica(0)

	for _, disturb := range []func(){
		func() { proxy.Delay(time.Millisecond) },
		func() { proxy.Blackhole(true) },
		func() { proxy.Blackhole(false); proxy.Refuse(true); proxy.Cut() },
		func() { proxy.Refuse(false); proxy.Delay(0) },
	} {
		disturb()
		p, err := cache.Get(ctx, "42", products.Load("42"))
		fmt.Println(p, err)
	}
	// Output:
	// product 42 <nil>
	// product 42 <nil>
	// product 42 <nil>
	// product 42 <nil>
}

// A test of its own Redis, which is skipped where there is no redis-server.
func ExampleRedisServer() {
	_ = func(t *testing.T) { // TestOnRedis
		rdb := redis.NewClient(&redis.Options{
			Addr: guardtest.RedisServer(t), ContextTimeoutEnabled: true,
		})
		store, err := redisstore.New(rdb, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close(); _ = rdb.Close() })
		if err := store.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
