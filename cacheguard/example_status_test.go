package cacheguard_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A handler says in a field of its response where the value came from.
func ExampleStatus() {
	products := newProducts()
	defer products.Close()
	source := func(s cacheguard.Status) string {
		switch s {
		case cacheguard.StatusHit:
			return "cache"
		case cacheguard.StatusStale:
			return "cache, out of date"
		case cacheguard.StatusLoaded, cacheguard.StatusCoalesced:
			return "database"
		default:
			return "nowhere"
		}
	}
	for range 2 {
		r, err := products.GetResult(context.Background(), "42", loadProduct("42"))
		fmt.Println("X-Source:", source(r.Status), err)
	}
	// Output:
	// origin: select 42
	// X-Source: database <nil>
	// X-Source: cache <nil>
}

// counter is an Observer that counts one kind of event.
type counter struct {
	kind cacheguard.EventKind
	n    atomic.Int64
}

func (c *counter) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == c.kind {
		c.n.Add(1)
	}
}

// Several observers see the same cache. Events are counted by an observer, gauges are in Stats.
func ExampleObservers() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	hits := &counter{kind: cacheguard.EventHit}
	misses := &counter{kind: cacheguard.EventMiss}
	products, err := cacheguard.New(store, cacheguard.Options[Product]{
		Name: "product", Observer: cacheguard.Observers(hits, misses),
	})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	for range 3 {
		_, _ = products.Get(context.Background(), "42", loadProduct("42"))
	}
	fmt.Println("hits:", hits.n.Load(), "misses:", misses.n.Load())
	fmt.Println("unsent changes:", products.Stats().Unsent)
	// Output:
	// origin: select 42
	// hits: 2 misses: 1
	// unsent changes: 0
}
