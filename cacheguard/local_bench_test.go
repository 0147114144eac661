package cacheguard_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A Get that the local tier answers, beside otter, in one run:
//
//	go test -run '^$' -bench BenchmarkLocalHit -count 6 ./cacheguard
//
// The caches are nearly full, for only then otter notes which entries were used. "otter" has an
// expiry, without which no cache could do; "otter, no expiry" never looks at the clock.
func BenchmarkLocalHit(b *testing.B) {
	const entries, room = 1000, 1500
	ctx := context.Background()
	keys := make([]string, entries)
	for i := range keys {
		keys[i] = "product:" + strconv.Itoa(i)
	}
	load := func(context.Context) ([]byte, error) { return nil, errors.New("this must be a hit") }
	for _, size := range []struct {
		name  string
		bytes int
	}{{"16B", 16}, {"10KB", 10 << 10}} {
		expiring := otter.Must(&otter.Options[string, []byte]{
			MaximumSize: room, ExpiryCalculator: otter.ExpiryWriting[string, []byte](time.Hour),
		})
		defer expiring.StopAllGoroutines()
		bare := otter.Must(&otter.Options[string, []byte]{MaximumSize: room})
		store := memstore.New(memstore.Options{})
		defer store.Close()
		cache, err := cacheguard.New(store, cacheguard.Options[[]byte]{
			Name: "local", TTL: time.Hour,
			Local: cacheguard.Local[[]byte]{Entries: room, TTL: time.Hour},
		})
		if err != nil {
			b.Fatal(err)
		}
		defer cache.Close()
		for _, key := range keys {
			value := make([]byte, size.bytes)
			expiring.Set(key, value)
			bare.Set(key, value)
			if err := cache.Set(ctx, key, value); err != nil {
				b.Fatal(err)
			}
			if _, err := cache.Get(ctx, key, load); err != nil {
				b.Fatal(err)
			}
		}
		for _, c := range []struct {
			name string
			get  func(key string) bool
		}{
			{"otter", func(key string) bool { _, ok := expiring.GetIfPresent(key); return ok }},
			{"otter, no expiry", func(key string) bool {
				_, ok := bare.GetIfPresent(key)
				return ok
			}},
			{"cacheguard", func(key string) bool {
				_, err := cache.Get(ctx, key, load)
				return err == nil
			}},
			{"cacheguard, result", func(key string) bool {
				res, err := cache.GetResult(ctx, key, load)
				return err == nil && res.Local
			}},
		} {
			b.Run(size.name+"/1/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if !c.get(keys[i%entries]) {
						b.Fatal("a miss")
					}
				}
			})
			b.Run(size.name+"/256/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(128) // times GOMAXPROCS, 2 on the machine of the figures
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if !c.get(keys[i%entries]) {
							b.Error("a miss")
							return
						}
					}
				})
			})
		}
	}
}
