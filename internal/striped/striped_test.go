package striped

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// Nothing is lost or counted twice, whoever counts, and counters don't mix.
func TestSum(t *testing.T) {
	var counters Counters
	var counting sync.WaitGroup
	for g := range uint8(64) {
		counting.Go(func() {
			for range 1000 {
				counters.Add(g % Most)
			}
		})
	}
	counting.Wait()
	for c := range uint8(Most) {
		if got, want := counters.Sum(c), uint64(64*1000/Most); got != want {
			t.Errorf("counter %d: got %d, want %d", c, got, want)
		}
	}
}

// Goroutines spread over the slots. Of 256 that are alive at the same time a slot has 4 on average.
func TestSlots(t *testing.T) {
	var counters Counters
	var counting sync.WaitGroup
	all := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(256)
	for range 256 {
		counting.Go(func() {
			counters.Add(0)
			ready.Done()
			<-all
		})
	}
	ready.Wait()
	close(all)
	counting.Wait()
	used := 0
	for i := range counters.slots {
		if counters.slots[i].n[0].Load() > 0 {
			used++
		}
	}
	if used < slots/4 {
		t.Errorf("256 goroutines use %d of %d slots", used, slots)
	}
}

// BenchmarkAdd compares with one counter for all, and with a slot drawn for each count:
//
//	go test -run '^$' -bench Add -cpu 1,2 ./internal/striped
func BenchmarkAdd(b *testing.B) {
	var counters Counters
	var one atomic.Uint64
	for name, add := range map[string]func(){
		"counters": func() { counters.Add(1) },
		"one":      func() { one.Add(1) },
		"random":   func() { counters.slots[rand.Uint32()%slots].n[1].Add(1) },
	} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					add()
				}
			})
		})
	}
}
