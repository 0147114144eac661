package cacheguard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// BenchmarkCrowd is a crowd of new goroutines that ask for one cold key, each with a context that
// can end, until all have the result, per member, but for the load:
//
//	go test -run '^$' -bench BenchmarkCrowd -count 6 ./cacheguard
func BenchmarkCrowd(b *testing.B) {
	const crowd, loads = 5000, 20 * time.Millisecond // by then all wait for it
	run := func(
		b *testing.B,
		get func(ctx context.Context, key string,
			load func(context.Context) (string, error)) (string, error),
	) {
		b.ReportAllocs()
		round := 0
		for b.Loop() {
			round++
			key := fmt.Sprint("k", round)
			begin := make(chan struct{})
			var here, done sync.WaitGroup
			here.Add(crowd)
			load := func(context.Context) (string, error) { time.Sleep(loads); return "v", nil }
			ctx, cancel := context.WithCancel(context.Background())
			for range crowd {
				done.Go(func() {
					here.Done()
					<-begin
					if v, err := get(ctx, key, load); v != "v" || err != nil {
						b.Error(v, err)
					}
				})
			}
			here.Wait()
			close(begin)
			done.Wait()
			cancel()
		}
		b.ReportMetric(
			(float64(b.Elapsed().Nanoseconds())/float64(b.N)-float64(loads.Nanoseconds()))/crowd,
			"ns/member")
	}
	b.Run("cacheguard", func(b *testing.B) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c, err := cacheguard.New(store, cacheguard.Options[string]{Name: "crowd"})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		run(b, func(
			ctx context.Context, key string, load func(context.Context) (string, error),
		) (string, error) {
			return c.Get(ctx, key, load)
		})
	})
	b.Run("singleflight", func(b *testing.B) {
		var g singleflight.Group
		run(b, func(
			ctx context.Context, key string, load func(context.Context) (string, error),
		) (string, error) {
			v, err, _ := g.Do(key, func() (any, error) { return load(ctx) })
			return v.(string), err
		})
	})
}
