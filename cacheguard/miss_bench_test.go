package cacheguard_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// BenchmarkMiss is what a load costs beside the load: of a key that was never asked for, of one of
// many in a batch, and of a key that is written.
func BenchmarkMiss(b *testing.B) {
	store := memstore.New(memstore.Options{})
	defer func() { _ = store.Close() }()
	c, err := cacheguard.New(store, cacheguard.Options[string]{Name: "miss"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_, err = c.Get(ctx, "get-"+strconv.Itoa(b.N)+"-"+strconv.Itoa(i), func(
				context.Context,
			) (string, error) {
				return "v", nil
			})
		}
	})
	b.Run("GetMany/100", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			keys := make([]string, 100)
			for j := range keys {
				keys[j] = "many-" + strconv.Itoa(b.N) + "-" + strconv.Itoa(i) + "-" +
					strconv.Itoa(j)
			}
			_, err = c.GetMany(ctx, keys, func(
				_ context.Context, missing []string,
			) (map[string]string, error) {
				got := make(map[string]string, len(missing))
				for _, k := range missing {
					got[k] = "v"
				}
				return got, nil
			})
		}
	})
	b.Run("Update", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_, err = c.Update(ctx, "update-"+strconv.Itoa(i), func(
				context.Context,
			) (string, error) {
				return "v", nil
			})
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}
