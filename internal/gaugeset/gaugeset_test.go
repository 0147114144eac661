package gaugeset_test

import (
	"maps"
	"testing"

	"github.com/cacheguard/cacheguard/internal/gaugeset"
)

// stats is a gauge and a counter.
type stats struct{ running, hits int }

func newSet() *gaugeset.Set[stats] {
	return &gaugeset.Set[stats]{
		Plus: func(a, b stats) stats { return stats{a.running + b.running, a.hits + b.hits} },
		Left: func(last stats) stats { return stats{hits: last.hits} },
	}
}

func all(s *gaugeset.Set[stats]) map[string]stats {
	found := map[string]stats{}
	s.Each(func(name string, sum stats) { found[name] = sum })
	return found
}

// Caches of one name add up; of one that is gone the counter stays and the gauge goes, once.
func TestOneNameAddsUp(t *testing.T) {
	s := newSet()
	one, two, other := stats{1, 10}, stats{2, 20}, stats{4, 40}
	read := func(from *stats) func() stats { return func() stats { return *from } }
	detach := s.Attach("a", read(&one))
	s.Attach("a", read(&two))
	s.Attach("b", read(&other))
	if got, want := all(s), (map[string]stats{"a": {3, 30}, "b": {4, 40}}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	one.hits = 11
	detach()
	detach()
	one.hits = 1000
	if got, want := all(s)["a"], (stats{2, 31}); got != want {
		t.Errorf("after one is gone: %v, want %v", got, want)
	}
}
