package cacheguard_test

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// wrongAnswers is an Observer that passes on what an audit finds.
type wrongAnswers chan cacheguard.Event

func (w wrongAnswers) Observe(_ context.Context, e cacheguard.Event) {
	if e.Differs.Wrong() {
		select {
		case w <- e:
		default:
		}
	}
}

// An audit finds a change of which nobody has told the cache.
func ExampleAudit() {
	found := make(wrongAnswers, 1)
	store := memstore.New(memstore.Options{})
	defer store.Close()
	c, err := cacheguard.New(store, cacheguard.Options[int]{
		Name: "stock", Observer: found,
		// In production PerSecond 1 and the default Settle.
		Audit: cacheguard.Audit{PerSecond: 100, Settle: 10 * time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	stock := 10
	get := func() {
		if _, err := c.Get(context.Background(), "42", func(context.Context) (int, error) {
			return stock, nil
		}); err != nil {
			fmt.Println(err)
		}
	}
	get()
	stock = 9 // and nobody calls Invalidate
	for {
		get()
		select {
		case e := <-found:
			fmt.Println(e.Key, e.Differs)
			return
		case <-time.After(time.Millisecond):
		}
	}
	// Output: 42 missed
}

// A program that never invalidates relies on the TTL, so only values older than that are wrong. Two
// prices are the same for callers if they look the same.
func ExampleAudit_tolerance() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	prices, err := cacheguard.New(store, cacheguard.Options[float64]{
		Name:  "price",
		TTL:   time.Minute,
		Audit: cacheguard.Audit{PerSecond: 0.1, Tolerance: time.Minute},
		Same:  func(a, b float64) bool { return math.Round(100*a) == math.Round(100*b) },
	})
	if err != nil {
		panic(err)
	}
	defer prices.Close()
	fmt.Println(prices.Stats().Wrong)
	// Output: 0
}
