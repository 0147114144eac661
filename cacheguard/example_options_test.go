package cacheguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A report takes up to a minute and hurts the database. Two loads run at a time, and callers wait
// for half a second at most while there is an older report.
func ExampleOptions_slowLoads() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	reports, err := cacheguard.New(store, cacheguard.Options[string]{
		Name:         "report",
		TTL:          time.Hour,
		Jitter:       0.2, // reports of one night don't expire together
		StaleIfError: 24 * time.Hour,
		SoftTimeout:  500 * time.Millisecond,
		Backoff:      time.Minute, // after a failure
		LoadTimeout:  90 * time.Second,
		LeaseTTL:     5 * time.Second,
		MaxLoads:     2,
		MaxWaiters:   1000,
		Logger:       slog.Default().With("part", "reports"),
	})
	if err != nil {
		panic(err)
	}
	defer reports.Close()

	load := func(context.Context) (string, error) { return "report", nil }
	report, err := reports.Get(context.Background(), "2026-11", load)
	fmt.Println(report, err)
	// Output: report <nil>
}

// A balance must never be older than a change that has returned, in whichever process.
func ExampleOptions_strongReads() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	open := func() *cacheguard.Cache[int] { // as each process does
		balances, err := cacheguard.New(store,
			cacheguard.Options[int]{Name: "balance", StrongReads: true})
		if err != nil {
			panic(err)
		}
		return balances
	}
	here, there := open(), open()
	defer here.Close()
	defer there.Close()
	ctx, balance := context.Background(), 100
	load := func(context.Context) (int, error) { return balance, nil }
	_, _ = there.Get(ctx, "ann", load)

	balance = 70 // committed
	if err := here.Invalidate(ctx, "ann"); err != nil {
		panic(err)
	}
	fmt.Println(there.Get(ctx, "ann", load))
	// Output: 70 <nil>
}

// centsCodec stores amounts as text.
type centsCodec struct{}

func (centsCodec) Append(dst []byte, cents int) ([]byte, error) {
	return fmt.Appendf(dst, "%d.%02d", cents/100, cents%100), nil
}

func (centsCodec) Decode(src []byte) (int, error) {
	var whole, rest int
	_, err := fmt.Sscanf(string(src), "%d.%d", &whole, &rest)
	return whole*100 + rest, err
}

// A Codec decides which bytes the store has. Raise Version in a release that changes the meaning of
// stored values: here the values were whole euros before.
func ExampleCodec() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	var codec cacheguard.Codec[int] = centsCodec{}
	prices, err := cacheguard.New(store,
		cacheguard.Options[int]{Name: "price", Codec: codec, Version: 1})
	if err != nil {
		panic(err)
	}
	defer prices.Close()
	ctx := context.Background()
	if err := prices.Set(ctx, "42", 1995); err != nil {
		panic(err)
	}
	r, err := prices.Peek(ctx, "42")
	fmt.Println(r.Value, err)
	// Output: 1995 <nil>
}

// An edit of a category makes its pages stale, not invalid: readers get the old page at once while
// a new one is made.
func ExampleCache_MarkStaleTags() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	err := products.SetEntry(ctx, "42", cacheguard.Entry[Product]{
		Value:                Product{ID: "42", Name: "lamp"},
		SoftTags:             []string{"category:light"},
		StaleWhileRevalidate: time.Minute,
		StaleIfError:         time.Hour,
	})
	if err != nil {
		panic(err)
	}
	if err := products.MarkStaleTags(ctx, "category:light"); err != nil {
		panic(err)
	}
	r, err := products.Peek(ctx, "42")
	fmt.Println(r.Value.Name, r.Status, err)
	// Output: lamp stale <nil>
}

// If one customer has a special price, the result is for this customer alone. The stored product
// for all other customers stays.
func ExampleEntry_noShare() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "42", Product{ID: "42", Name: "lamp"})

	r, err := products.RefreshEntry(ctx, "42", func(
		context.Context, cacheguard.Result[Product],
	) (cacheguard.Entry[Product], error) {
		own := Product{ID: "42", Name: "lamp, for you"}
		return cacheguard.Entry[Product]{Value: own, NoShare: true, LeaveStored: true}, nil
	})
	fmt.Println(r.Value.Name, err)
	r, err = products.Peek(ctx, "42")
	fmt.Println(r.Value.Name, err)
	// Output:
	// lamp, for you <nil>
	// lamp <nil>
}

// A function for operators switches a cache on or off, and returns the mode from before.
func ExampleMode() {
	var products cacheguard.Switch // Options.Switch: &products
	change := func(enabled bool) (was cacheguard.Mode, err error) {
		was = products.Mode()
		if enabled {
			return was, products.Set(cacheguard.ModeOn)
		}
		return was, products.Set(cacheguard.ModeOff)
	}
	was, err := change(false)
	text, _ := json.Marshal(map[string]string{"was": was.String(), "is": products.Mode().String()})
	fmt.Println(string(text), err)
	// Output: {"is":"off","was":"on"} <nil>
}
