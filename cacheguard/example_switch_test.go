package cacheguard_test

import (
	"context"
	"fmt"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A cache is taken out of the path of its calls, and put back.
func ExampleSwitch() {
	var switched cacheguard.Switch
	store := memstore.New(memstore.Options{})
	defer store.Close()
	c, err := cacheguard.New(store, cacheguard.Options[int]{Name: "stock", Switch: &switched})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	stock := 10
	get := func() {
		n, err := c.Get(context.Background(), "42", func(context.Context) (int, error) {
			return stock, nil
		})
		fmt.Println(switched.Mode(), n, err)
	}
	get()
	stock = 9 // and nobody calls Invalidate
	get()
	for _, text := range []string{"off", "on"} { // from a flag of the program
		mode, err := cacheguard.ParseMode(text)
		if err == nil {
			err = switched.Set(mode)
		}
		if err != nil {
			fmt.Println(err)
		}
		get()
	}
	// Output:
	// on 10 <nil>
	// on 10 <nil>
	// off 9 <nil>
	// on 10 <nil>
}
