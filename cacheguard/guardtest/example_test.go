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

// exampleT stands for the *testing.T that a test has and an example hasn't.
type exampleT struct {
	testing.TB
	cleanups []func()
}

func (t *exampleT) Helper()                   {}
func (t *exampleT) Cleanup(do func())         { t.cleanups = append(t.cleanups, do) }
func (t *exampleT) Logf(string, ...any)       {}
func (t *exampleT) Errorf(f string, a ...any) { fmt.Printf(f+"\n", a...) }
func (t *exampleT) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func (t *exampleT) end() {
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		do := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		do()
	}
}

// A stampede over three replicas costs one load.
func Example() {
	t := &exampleT{} // in a test, its own t
	defer t.end()

	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	products.Inject(guardtest.Fault{Takes: 50 * time.Millisecond})
	fleet := guardtest.NewFleet(t, 3, cacheguard.Options[string]{})

	answers := fleet.Stampede(context.Background(), "42", 100, products.Load("42"))
	fmt.Println("callers:", len(answers))
	fmt.Println("errors:", answers.Err())
	fmt.Println("loads:", products.Loads())
	// Output:
	// callers: 300
	// errors: <nil>
	// loads: 1
}

// An origin that fails twice: the error is remembered for ErrorTTL, so the second call doesn't ask
// the origin.
func ExampleOrigin_Inject() {
	t := &exampleT{}
	defer t.end()

	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	products.Inject(guardtest.Fault{Times: 2, Err: errors.New("connection reset")})
	cache := guardtest.NewFleet(t, 1, cacheguard.Options[string]{ErrorTTL: time.Hour}).Replica(0)

	for _, id := range []string{"1", "1", "2", "3"} {
		p, err := cache.Get(context.Background(), id, products.Load(id))
		fmt.Printf("%q %v, %d loads\n", p, err, products.Loads())
	}
	// Output:
	// "" connection reset, 1 loads
	// "" connection reset, 1 loads
	// "" connection reset, 2 loads
	// "product 3" <nil>, 3 loads
}

// Without a fake clock a gate tells when: the load is under way, then the product changes, then the
// load returns what it had read. That is too old to be stored.
func ExampleOrigin_Hold() {
	t := &exampleT{}
	defer t.end()
	ctx := context.Background()

	products := guardtest.NewOrigin(t, func(string) string { return "lamp" })
	cache := guardtest.NewFleet(t, 1, cacheguard.Options[string]{}).Replica(0)

	open := products.Hold()
	early := make(chan string)
	go func() {
		p, _ := cache.Get(ctx, "42", products.Load("42"))
		early <- p
	}()
	products.Await(1)
	products.Set("42", "desk lamp")
	_ = cache.Invalidate(ctx, "42")
	open()

	fmt.Println("who asked before:", <-early)
	p, _ := cache.Get(ctx, "42", products.Load("42"))
	fmt.Println("who asks now:", p)
	// Output:
	// who asked before: lamp
	// who asks now: desk lamp
}

// What a cache did that callers don't see.
func ExampleRecorder() {
	t := &exampleT{}
	defer t.end()
	ctx := context.Background()

	var events guardtest.Recorder
	products := guardtest.NewOrigin(t, func(id string) string {
		return "a rather long description"
	})
	cache := guardtest.NewFleet(t, 1,
		cacheguard.Options[string]{MaxValueSize: 10, Observer: &events}).Replica(0)

	p, err := cache.Get(ctx, "42", products.Load("42"))
	fmt.Println(p, err)
	events.Await(t, cacheguard.EventNotStored, 1)
	for _, e := range events.Events(cacheguard.EventNotStored) {
		fmt.Println(e.Kind, errors.Is(e.Err, cacheguard.ErrTooLarge))
	}
	// Output:
	// a rather long description <nil>
	// not stored true
}

// The reply to the request for the lease is lost on its way. The lease was granted, so the replica
// asks again and finds that it has it. With RedisServer in the place of the miniredis this is a
// test with a real Redis, where there is one.
func ExampleProxy_DropReply() {
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
	store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: 3 * time.Second})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if err := store.Warm(ctx); err != nil {
		panic(err)
	}
	products := guardtest.NewOrigin(t, func(id string) string { return "product " + id })
	cache := guardtest.NewFleet(t, 1, cacheguard.Options[string]{}, store).Replica(0)

	lost := proxy.DropReply(func(command []string) bool { return command[0] == "EVALSHA" })
	p, err := cache.Get(ctx, "42", products.Load("42"))
	lost.Await()
	fmt.Println(p, err)
	fmt.Println("loads:", products.Loads())
	// Output:
	// product 42 <nil>
	// loads: 1
}
