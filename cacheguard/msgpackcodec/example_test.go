package msgpackcodec_test

import (
	"context"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/msgpackcodec"
)

type Product struct {
	ID   string `msgpack:"id"`
	Name string `msgpack:"name"`
}

// The example stores products as MessagePack.
func Example() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store, cacheguard.Options[Product]{
		Name: "product", Codec: msgpackcodec.Codec[Product]{},
	})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	for range 2 {
		p, err := products.Get(context.Background(), "42", func(context.Context) (Product, error) {
			fmt.Println("loading")
			return Product{ID: "42", Name: "lamp"}, nil
		})
		fmt.Println(p, err)
	}

	// Output:
	// loading
	// {42 lamp} <nil>
	// {42 lamp} <nil>
}
