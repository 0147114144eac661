package eventcount_test

import (
	"reflect"
	"slices"
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

// gauges are the fields of Stats that say how things are now. All other fields count.
var gauges = []string{
	"LocalEntries", "Unsent", "LoadsRunning", "LoadsQueued", "Flights", "Callers", "SwitchedOff",
	"InShadow",
	"BreakersOpen", "Breakers",
}

// Every field of Stats is added up. When a cache is detached, its counters stay in the sum and its
// gauges don't. A new field is a counter unless it is in gauges.
func TestEveryFieldAddsUp(t *testing.T) {
	caches := newCaches()
	var once, twice, left cacheguard.Stats
	fields := reflect.TypeFor[cacheguard.Stats]()
	for i := range fields.NumField() {
		set := func(s *cacheguard.Stats, n int) {
			f := reflect.ValueOf(s).Elem().Field(i)
			f.Set(reflect.ValueOf((i + 1) * n).Convert(f.Type()))
		}
		set(&once, 1)
		set(&twice, 2)
		if set(&left, 2); slices.Contains(gauges, fields.Field(i).Name) {
			set(&left, 1)
		}
	}
	stats := func() cacheguard.Stats { return once }
	detach := caches.Attach("a", stats)
	caches.Attach("a", stats)
	if got := all(caches)["a"]; got != twice {
		t.Errorf("two of %+v are %+v", once, got)
	}
	detach()
	if got := all(caches)["a"]; got != left {
		t.Errorf("after one of two is detached, the sum is %+v; want %+v", got, left)
	}
}
