package cacheguard_test

import (
	"context"
	"fmt"
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
		Audit: cacheguard.Audit{PerSecond: 100, Settle: 10 * time.Millisecond}, // as a rule 1 a second, and the default
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	stock := 10
	get := func() {
		if _, err := c.Get(context.Background(), "42", func(context.Context) (int, error) { return stock, nil }); err != nil {
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
