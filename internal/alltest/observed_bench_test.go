package alltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/otelobserver"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/cacheguard/slogobserver"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// What an observer costs a hit:
//
//	go test -run '^$' -bench BenchmarkObserved -benchtime 1x -cpu 1,2 ./internal/alltest
//
// Rounds with and without the observer take turns, so that both see the same machine; x/without is
// the median of the ratios of neighbours. "none" is two caches without any: what the measurement
// itself is worth.
func BenchmarkObserved(b *testing.B) {
	const entries = 1000
	keys := make([]string, entries)
	for i := range keys {
		keys[i] = "product:" + strconv.Itoa(i)
	}
	observers := []struct {
		name string
		new  func() cacheguard.Observer
	}{
		{"none", func() cacheguard.Observer { return nil }},
		{"noop", func() cacheguard.Observer { return noop{} }},
		{"prom", func() cacheguard.Observer {
			o, err := promobserver.New(promobserver.Options{})
			if err != nil {
				b.Fatal(err)
			}
			return o
		}},
		{"otel", func() cacheguard.Observer {
			o, err := otelobserver.New(otelobserver.Options{
				TracerProvider: sdktrace.NewTracerProvider(),
				MeterProvider:  sdkmetric.NewMeterProvider(),
			})
			if err != nil {
				b.Fatal(err)
			}
			return o
		}},
		{"slog", func() cacheguard.Observer { return slogobserver.New(slogobserver.Options{}) }},
	}
	load := func(context.Context) ([]byte, error) { return nil, errors.New("this must be a hit") }
	open := func(
		b *testing.B, store cacheguard.Store, opts cacheguard.Options[[]byte],
	) *cacheguard.Cache[[]byte] {
		opts.TTL = time.Hour
		cache, err := cacheguard.New(store, opts)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cache.Close() })
		for _, key := range keys {
			if err := cache.Set(context.Background(), key, make([]byte, 16)); err != nil {
				b.Fatal(err)
			}
			if _, err := cache.Get(context.Background(), key, load); err != nil {
				b.Fatal(err)
			}
		}
		return cache
	}
	get := func(c *cacheguard.Cache[[]byte]) func(key string) bool {
		return func(key string) bool {
			_, err := c.Get(context.Background(), key, load)
			return err == nil
		}
	}
	result := func(c *cacheguard.Cache[[]byte]) func(key string) bool {
		return func(key string) bool {
			_, err := c.GetResult(context.Background(), key, load)
			return err == nil
		}
	}

	for _, o := range observers {
		b.Run("local/"+o.name, func(b *testing.B) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			local := cacheguard.Local[[]byte]{Entries: 1500, TTL: time.Hour}
			bare := open(b, store, cacheguard.Options[[]byte]{Name: "bare", Local: local})
			observed := open(b, store,
				cacheguard.Options[[]byte]{Name: "observed", Local: local, Observer: o.new()})
			for _, crowd := range []int{1, 256} {
				b.Run(fmt.Sprintf("%d/get", crowd), func(b *testing.B) {
					compare(b, crowd, 200_000, keys, get(bare), get(observed))
				})
				b.Run(fmt.Sprintf("%d/result", crowd), func(b *testing.B) {
					compare(b, crowd, 200_000, keys, result(bare), result(observed))
				})
			}
		})
		b.Run("redis/"+o.name, func(b *testing.B) {
			server := redistest.Start(b)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
			defer rdb.Close()
			store, err := redisstore.New(rdb, redisstore.Options{OpTimeout: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = store.Close() })
			bare := open(b, store, cacheguard.Options[[]byte]{Name: "bare", LeaseTTL: time.Minute})
			observed := open(b, store, cacheguard.Options[[]byte]{
				Name: "observed", LeaseTTL: time.Minute, Observer: o.new(),
			})
			b.Run("1/get", func(b *testing.B) {
				compare(b, 1, 500, keys, get(bare), get(observed))
			})
			b.Run("256/get", func(b *testing.B) {
				compare(b, 256, 10_000, keys, get(bare), get(observed))
			})
			b.Run("256/same", func(b *testing.B) {
				compare(b, 256, 50_000, keys[:1], get(bare), get(observed))
			})
		})
	}
}

// noop is what every observer costs at least.
type noop struct{}

func (noop) Observe(context.Context, cacheguard.Event) {}

// compare reports what one way takes as a multiple of the other.
func compare(b *testing.B, crowd, calls int, keys []string, without, with func(key string) bool) {
	rounds := 41
	if testing.Short() {
		rounds = 3 // enough to show that the benchmark works
	}
	run := func(get func(key string) bool) time.Duration {
		if crowd == 1 {
			began := time.Now()
			for i := range calls {
				if !get(keys[i%len(keys)]) {
					b.Fatal("a miss")
				}
			}
			return time.Since(began)
		}
		var ready, done sync.WaitGroup
		start := make(chan struct{})
		ready.Add(crowd)
		for g := range crowd {
			done.Go(func() {
				ready.Done()
				<-start
				for i := range calls / crowd {
					if !get(keys[(g+i)%len(keys)]) {
						b.Error("a miss")
						return
					}
				}
			})
		}
		ready.Wait()
		began := time.Now()
		close(start)
		done.Wait()
		return time.Since(began)
	}
	allocs := testing.AllocsPerRun(100, func() {
		with(keys[0])
	}) - testing.AllocsPerRun(100, func() {
		without(keys[0])
	})
	for b.Loop() {
		var ratios, nanos []float64
		run(without)
		run(with)
		for i := range rounds {
			var one, other time.Duration
			if i%2 == 0 {
				one, other = run(without), run(with)
			} else {
				other, one = run(with), run(without)
			}
			ratios = append(ratios, float64(other)/float64(one))
			nanos = append(nanos, float64(one)/float64(calls))
		}
		slices.Sort(ratios)
		slices.Sort(nanos)
		b.ReportMetric(ratios[rounds/2], "x/without")
		b.ReportMetric(ratios[rounds/4], "x/quartile1")
		b.ReportMetric(ratios[3*rounds/4], "x/quartile3")
		b.ReportMetric(nanos[rounds/2], "ns/without")
		b.ReportMetric(allocs, "allocs/more")
		b.ReportMetric(0, "ns/op")
	}
}
