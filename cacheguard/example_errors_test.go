package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

// statusOf is what a handler answers when a Get has failed.
func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, cacheguard.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, cacheguard.ErrOverloaded), errors.Is(err, cacheguard.ErrUnavailable),
		errors.Is(err, cacheguard.ErrClosed):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// Without Redis the origin would get all calls. FailClosed refuses them instead.
func ExampleStorePolicy() {
	server, err := miniredis.Run() // a Redis for this example
	if err != nil {
		panic(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb, redisstore.Options{Logger: quiet})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	server.Close() // Redis is down

	for _, policy := range []cacheguard.StorePolicy{cacheguard.FailOpen, cacheguard.FailClosed} {
		products, err := cacheguard.New(store, cacheguard.Options[Product]{
			Name: fmt.Sprint("product", policy), OnStoreDown: policy, Logger: quiet,
		})
		if err != nil {
			panic(err)
		}
		p, err := products.Get(context.Background(), "42", loadProduct("42"))
		fmt.Printf("%q %d\n", p.Name, statusOf(err))
		products.Close()
	}
	// Output:
	// origin: select 42
	// "lamp" 200
	// "" 503
}

// Two caches share one connection to a slow service. While it is in use, one more load may wait;
// the next one is refused at once.
func ExampleNewLimiter() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	service := cacheguard.NewLimiter(1, 1)
	open := func(name string, limiter *cacheguard.Limiter) *cacheguard.Cache[int] {
		c, err := cacheguard.New(store, cacheguard.Options[int]{Name: name, Limiter: limiter})
		if err != nil {
			panic(err)
		}
		return c
	}
	stock, prices := open("stock", service), open("price", service)
	defer stock.Close()
	defer prices.Close()
	ctx, refused := context.Background(), make(chan error, 2)

	_, err := stock.Get(ctx, "42", func(context.Context) (int, error) {
		for _, id := range []string{"1", "2"} { // one of them waits
			go func() {
				load := func(context.Context) (int, error) { return 7, nil }
				_, err := prices.Get(context.Background(), id, load)
				refused <- err
			}()
		}
		fmt.Println(errors.Is(<-refused, cacheguard.ErrOverloaded))
		return 7, nil
	})
	fmt.Println(err, <-refused)
	// Output:
	// true
	// <nil> <nil>
}

// A load that panics doesn't end the process. Its callers get the panic as an error, with the
// stack.
func ExamplePanicError() {
	products := newProducts()
	defer products.Close()
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, err := products.Get(r.Context(), "42", func(context.Context) (Product, error) {
			panic("no such column")
		})
		var panicked *cacheguard.PanicError
		if errors.As(err, &panicked) {
			fmt.Println("panic:", panicked.Value, len(panicked.Stack) > 0) // to the log
		}
		w.WriteHeader(statusOf(err))
	}

	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest("GET", "/products/42", nil))
	fmt.Println(w.Code)
	// Output:
	// panic: no such column true
	// 500
}

// A load failed in one process. For ErrorTTL, here a minute, the other processes answer with its
// error. ErrorText returns the text that they get, without secrets.
func ExampleLoadError() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	open := func() *cacheguard.Cache[Product] { // as each process does
		products, err := cacheguard.New(store, cacheguard.Options[Product]{
			Name:      "product",
			ErrorTTL:  time.Minute,
			ErrorText: func(error) string { return "database error" },
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
		return Product{}, errors.New("dial db-7.internal: refused")
	}

	_, err := here.Get(ctx, "42", load)
	fmt.Println(err)
	_, err = there.Get(ctx, "42", load)
	var elsewhere *cacheguard.LoadError
	if errors.As(err, &elsewhere) {
		fmt.Println(elsewhere.Key, elsewhere.Text)
	}
	// Output:
	// dial db-7.internal: refused
	// 42 database error
}

// A page that includes itself would wait for itself. The inner call gets an error instead.
func ExampleCache_Get_recursion() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()

	_, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
		return products.Get(ctx, "42", loadProduct("42"))
	})
	fmt.Println(errors.Is(err, cacheguard.ErrRecursion))
	// Output: true
}

// A long load checks its context between the steps of its work, and returns the cause when the
// context has ended. If it has lost its lease, its callers get the result of the load that has
// taken the lease.
func ExampleCache_Get_longLoad() {
	products := newProducts()
	defer products.Close()

	p, err := products.Get(context.Background(), "42", func(
		ctx context.Context,
	) (p Product, err error) {
		for _, part := range []string{"desk ", "lamp"} {
			if cause := context.Cause(ctx); errors.Is(cause, cacheguard.ErrLeaseLost) {
				fmt.Println("another process loads")
				return p, cause
			} else if cause != nil {
				return p, cause
			}
			p.Name += part // a step of the work
		}
		return p, nil
	})
	fmt.Println(p.Name, err)
	// Output: desk lamp <nil>
}
