package local

import (
	"strconv"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"
)

// BenchmarkHit compares a hit with one of bare otter: what it costs to tell the truth, and what an
// expiry in otter would cost besides. The caches are nearly full, for only then otter notes which
// entries were used.
//
//	go test ./internal/local -run '^$' -bench Hit -benchtime 200ms -count 5
func BenchmarkHit(b *testing.B) {
	type value struct{ body []byte }
	names := make([]string, 1000)
	for i := range names {
		names[i] = "product:" + strconv.Itoa(i)
	}
	const room = 1500
	for _, size := range []struct {
		name  string
		bytes int
	}{{"small", 16}, {"10KB", 10 << 10}} {
		newValue := func() *value { return &value{body: make([]byte, size.bytes)} }

		tier, err := New(Config[value]{Entries: room})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(tier.Close)
		tier.Trust()
		bare := otter.Must(&otter.Options[string, *value]{MaximumSize: room})
		expiring := otter.Must(&otter.Options[string, *value]{
			MaximumSize:      room,
			ExpiryCalculator: otter.ExpiryWriting[string, *value](time.Hour),
		})
		b.Cleanup(func() { expiring.StopAllGoroutines() })
		for _, name := range names {
			tier.Put(name, tier.Stamp(name), newValue())
			bare.Set(name, newValue())
			expiring.Set(name, newValue())
		}

		for _, c := range []struct {
			name string
			get  func(string) *value
		}{
			{"tier", tier.Get},
			{"otter", func(key string) *value { v, _ := bare.GetIfPresent(key); return v }},
			{"otter-expiry", func(key string) *value {
				v, _ := expiring.GetIfPresent(key)
				return v
			}},
		} {
			b.Run(size.name+"/"+c.name+"/1", func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if c.get(names[i%len(names)]) == nil {
						b.Fatal("a miss")
					}
				}
			})
			b.Run(size.name+"/"+c.name+"/256", func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(128) // times GOMAXPROCS, 2 on the machine of the figures
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if c.get(names[i%len(names)]) == nil {
							b.Error("a miss")
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkFill is what a miss costs besides the store, and an invalidation.
func BenchmarkFill(b *testing.B) {
	tier := trusted(b, Config[int]{Entries: 1000})
	e := new(int)
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tier.Put("key", tier.Stamp("key"), e)
		}
	})
	b.Run("drop-put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tier.Drop("key")
			tier.Put("key", tier.Stamp("key"), e)
		}
	})
	b.Run("trust", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tier.Trust()
		}
	})
}
