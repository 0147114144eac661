package flight

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sync/singleflight"
)

func BenchmarkUncontended(b *testing.B) {
	b.Run("flight", func(b *testing.B) {
		var g Group[int]
		b.ReportAllocs()
		for b.Loop() {
			f, _ := g.Join("key", 0)
			f.Land(1)
		}
	})
	b.Run("singleflight", func(b *testing.B) {
		var g singleflight.Group
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = g.Do("key", func() (any, error) { return 1, nil })
		}
	})
}

// BenchmarkJoin is a crowd that waits for one result, per member; bare is the same crowd on one
// channel, the floor.
func BenchmarkJoin(b *testing.B) {
	const crowd = 1000
	run := func(
		b *testing.B, ctx context.Context, begin func() (join func(ready func()), end func()),
	) {
		for b.Loop() {
			var ready, done sync.WaitGroup
			join, end := begin()
			ready.Add(crowd)
			for range crowd {
				done.Go(func() { join(ready.Done) })
			}
			ready.Wait()
			end()
			done.Wait()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/crowd, "ns/member")
	}
	b.Run("bare", func(b *testing.B) {
		run(b, context.Background(), func() (func(func()), func()) {
			ch := make(chan struct{})
			return func(ready func()) { ready(); <-ch }, func() { close(ch) }
		})
	})
	for name, ctx := range map[string]context.Context{
		"flight": context.Background(), "flight-cancellable": cancellable(b),
	} {
		b.Run(name, func(b *testing.B) {
			run(b, ctx, func() (func(func()), func()) {
				var g Group[int]
				lead, _ := g.Join("key", 0)
				return func(ready func()) {
					f, _ := g.Join("key", 0)
					ready()
					_, _ = f.Wait(ctx)
				}, func() { lead.Land(1) }
			})
		})
	}
	b.Run("singleflight", func(b *testing.B) {
		run(b, context.Background(), func() (func(func()), func()) {
			var g singleflight.Group
			ch, leading := make(chan struct{}), make(chan struct{})
			go func() {
				_, _, _ = g.Do("key", func() (any, error) { close(leading); <-ch; return 1, nil })
			}()
			<-leading
			return func(ready func()) {
				ready()
				_, _, _ = g.Do("key", func() (any, error) { return 1, nil })
			}, func() { close(ch) }
		})
	})
}

func cancellable(b *testing.B) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	return ctx
}
