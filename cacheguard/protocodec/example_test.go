package protocodec_test

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/protocodec"
)

// The example stores messages in their wire format. StringValue stands for a message of your own.
func Example() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	names, err := cacheguard.New(store, cacheguard.Options[*wrapperspb.StringValue]{
		Name: "name", Codec: protocodec.Codec[*wrapperspb.StringValue]{},
	})
	if err != nil {
		panic(err)
	}
	defer names.Close()

	for range 2 {
		name, err := names.Get(context.Background(), "42", func(
			context.Context,
		) (*wrapperspb.StringValue, error) {
			fmt.Println("loading")
			return wrapperspb.String("lamp"), nil
		})
		fmt.Println(name.GetValue(), err)
	}

	// Output:
	// loading
	// lamp <nil>
	// lamp <nil>
}
