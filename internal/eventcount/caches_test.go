package eventcount_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

func newCaches() *eventcount.Caches[int] {
	return eventcount.NewCaches(strings.ToLower, func(name string) int { return len(name) })
}

func all(caches *eventcount.Caches[int]) map[string]cacheguard.Stats {
	found := map[string]cacheguard.Stats{}
	caches.Each(func(cache *eventcount.Cache[int], sum cacheguard.Stats, gauges bool) {
		if gauges {
			found[cache.Name] = sum
		}
	})
	return found
}

// Caches of one name add up; of one that is gone the counter stays and the gauge goes, once.
func TestOneNameAddsUp(t *testing.T) {
	type stats = cacheguard.Stats
	caches := newCaches()
	one, two := stats{Flights: 1, LocalHits: 10}, stats{Flights: 2, LocalHits: 20}
	other := stats{Flights: 4, LocalHits: 40}
	read := func(from *stats) func() stats { return func() stats { return *from } }
	detach := caches.Attach("a", read(&one))
	caches.Attach("A", read(&two))
	caches.Attach("b", read(&other))
	caches.Of("c")
	want := map[string]stats{"a": {Flights: 3, LocalHits: 30}, "b": {Flights: 4, LocalHits: 40}}
	if got := all(caches); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	one.LocalHits = 11
	detach()
	detach()
	one.LocalHits = 1000
	if got, want := all(caches)["a"], (stats{Flights: 2, LocalHits: 31}); got != want {
		t.Errorf("after one is gone: %v, want %v", got, want)
	}
}

// A field of Stats that is new is added up, too.
func TestEveryFieldAddsUp(t *testing.T) {
	caches := newCaches()
	var once, twice cacheguard.Stats
	for i := range reflect.TypeFor[cacheguard.Stats]().NumField() {
		for n, s := range []*cacheguard.Stats{&once, &twice} {
			f := reflect.ValueOf(s).Elem().Field(i)
			f.Set(reflect.ValueOf((i + 1) * (n + 1)).Convert(f.Type()))
		}
	}
	for range 2 {
		caches.Attach("a", func() cacheguard.Stats { return once })
	}
	if got := all(caches)["a"]; got != twice {
		t.Errorf("two of %+v are %+v", once, got)
	}
}
