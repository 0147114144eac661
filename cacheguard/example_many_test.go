package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// What is cached comes in one trip, and one query fetches the rest.
func ExampleCache_GetMany() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	_ = products.Set(ctx, "1", Product{ID: "1", Name: "chair"})

	found, err := products.GetMany(ctx, []string{"1", "2", "3", "9"}, func(
		ctx context.Context, missing []string,
	) (map[string]Product, error) {
		fmt.Println("origin: select", missing)
		// there is no 9
		return map[string]Product{"2": {ID: "2", Name: "table"}, "3": {ID: "3", Name: "lamp"}}, nil
	})
	for _, id := range []string{"1", "2", "3", "9"} {
		if p, ok := found[id]; ok {
			fmt.Println(id, p.Name)
		}
	}
	fmt.Println(err)
	// Output:
	// origin: select [2 3 9]
	// 1 chair
	// 2 table
	// 3 lamp
	// <nil>
}

// A load of many keys decides about each result: which tags it has, and for how long it is kept.
func ExampleCache_GetManyEntries() {
	products := newProducts()
	defer products.Close()
	ctx := context.Background()
	show := func() {
		found, err := products.GetManyEntries(ctx, []string{"1", "2"}, func(
			ctx context.Context, missing []string,
		) (map[string]cacheguard.Entry[Product], error) {
			all := map[string]cacheguard.Entry[Product]{
				"1": {Value: Product{ID: "1", Name: "chair"}, Tags: []string{"maker:ercol"}},
				"2": {
					Value: Product{ID: "2", Name: "table"}, Tags: []string{"maker:vitra"},
					TTL: time.Minute,
				},
			}
			return all, nil
		})
		fmt.Println(found["1"].Status, found["2"].Status, err)
	}
	show()
	if err := products.InvalidateTags(ctx, "maker:ercol"); err != nil {
		panic(err)
	}
	show()
	// Output:
	// loaded loaded <nil>
	// loaded hit <nil>
}

// Ids needn't be strings. A load that can't give some of them says which, and the others are
// stored.
func ExampleGetManyBy() {
	products := newProducts()
	defer products.Close()

	found, err := cacheguard.GetManyBy(context.Background(), products, []int{1, 2}, strconv.Itoa,
		func(ctx context.Context, missing []int) (map[int]Product, error) {
			return map[int]Product{1: {Name: "chair"}}, cacheguard.KeyErrors{
				"2": errors.New("shard 2 is away"),
			}
		})
	fmt.Println(found[1].Name)
	var failed cacheguard.KeyErrors
	if errors.As(err, &failed) {
		fmt.Println(failed["2"])
	}
	// Output:
	// chair
	// shard 2 is away
}
