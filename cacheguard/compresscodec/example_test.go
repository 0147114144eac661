package compresscodec_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// The example stores rendered pages, which are compressed from 4 KiB on.
func Example() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	codec, err := compresscodec.New(compresscodec.Options[string]{
		Algorithm: compresscodec.Zstd, Threshold: 4 << 10,
	})
	if err != nil {
		panic(err)
	}
	pages, err := cacheguard.New(store, cacheguard.Options[string]{Name: "page", Codec: codec})
	if err != nil {
		panic(err)
	}
	defer pages.Close()

	for range 2 {
		page, err := pages.Get(context.Background(), "/", func(context.Context) (string, error) {
			fmt.Println("rendering")
			return strings.Repeat("<li>lamp</li>", 1000), nil
		})
		fmt.Println(len(page), err)
	}
	stored, _ := codec.Append(nil, strings.Repeat("<li>lamp</li>", 1000))
	fmt.Println("stored in less than 100 bytes:", len(stored) < 100)

	// Output:
	// rendering
	// 13000 <nil>
	// 13000 <nil>
	// stored in less than 100 bytes: true
}
