// Package eventcount counts the events of caches, for observers that export the counts. It says
// which number an event counts as, which metrics these numbers make, what these are called, and
// which gauges stand beside them.
package eventcount

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Caches is all caches of one observer. M is what the observer itself has for each of them.
type Caches[M any] struct {
	more  func(name string) M
	label func(cache string) string

	// known is by cache. It is replaced, never changed, for it is read for each event.
	known atomic.Pointer[map[string]*Cache[M]]
	mu    sync.Mutex // held while known is replaced; guards attached, open and left of each Cache
}

// Cache is one cache, or all that are exported under one name.
type Cache[M any] struct {
	Counters
	Name string
	More M

	attached bool // ever
	open     map[*func() cacheguard.Stats]bool
	left     cacheguard.Stats // of those that are closed
}

// NewCaches returns Caches that make by more what the observer has for each of them. Caches whose
// names get the same label count as one.
func NewCaches[M any](label func(cache string) string, more func(name string) M) *Caches[M] {
	c := &Caches[M]{label: label, more: more}
	c.known.Store(&map[string]*Cache[M]{})
	return c
}

// Of returns a cache, which is made if it isn't there.
func (c *Caches[M]) Of(cache string) *Cache[M] {
	if found := (*c.known.Load())[cache]; found != nil {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.known.Load()
	if found := old[cache]; found != nil {
		return found
	}
	known := maps.Clone(old)
	name := c.label(cache)
	one := known[name]
	if one == nil {
		one = &Cache[M]{Name: name, More: c.more(name), open: map[*func() cacheguard.Stats]bool{}}
		known[name] = one
	}
	known[cache] = one
	c.known.Store(&known)
	return one
}

// Attach adds what can be read of a cache until detach is called, which may be called twice.
// Several caches of one name add up. See [cacheguard.Attacher].
func (c *Caches[M]) Attach(cache string, stats func() cacheguard.Stats) (detach func()) {
	one := c.Of(cache)
	c.mu.Lock()
	defer c.mu.Unlock()
	one.open[&stats], one.attached = true, true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if one.open[&stats] {
			one.left = plus(one.left, counted(stats()))
			delete(one.open, &stats)
		}
	}
}

// Each tells of every cache there ever was, by name, with the sum of what can be read of it. The
// sum has gauges if one was ever attached. It reads under the lock, as detach does: between the two
// a cache would count twice or not at all.
func (c *Caches[M]) Each(tell func(cache *Cache[M], sum cacheguard.Stats, gauges bool)) {
	type summed struct {
		cache  *Cache[M]
		sum    cacheguard.Stats
		gauges bool
	}
	var all []summed
	c.mu.Lock()
	for name, one := range *c.known.Load() {
		if name != one.Name {
			continue
		}
		sum := one.left
		for stats := range one.open {
			sum = plus(sum, (*stats)())
		}
		all = append(all, summed{one, sum, one.attached})
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b summed) int { return cmp.Compare(a.cache.Name, b.cache.Name) })
	for _, s := range all {
		tell(s.cache, s.sum, s.gauges)
	}
}

func plus(a, b cacheguard.Stats) cacheguard.Stats {
	a.LocalEntries += b.LocalEntries
	a.LocalHits += b.LocalHits
	a.LocalNegativeHits += b.LocalNegativeHits
	a.Changes += b.Changes
	a.Unsent += b.Unsent
	a.SentLate += b.SentLate
	a.LoadsRunning += b.LoadsRunning
	a.LoadsQueued += b.LoadsQueued
	a.Flights += b.Flights
	a.Callers += b.Callers
	a.SwitchedOff += b.SwitchedOff
	a.InShadow += b.InShadow
	a.Compared += b.Compared
	a.Wrong += b.Wrong
	a.BreakersOpen += b.BreakersOpen
	a.Breakers += b.Breakers
	return a
}

// counted is what still counts of a cache that was closed.
func counted(last cacheguard.Stats) cacheguard.Stats {
	return cacheguard.Stats{
		LocalHits: last.LocalHits, LocalNegativeHits: last.LocalNegativeHits,
		Changes: last.Changes, SentLate: last.SentLate,
		Compared: last.Compared, Wrong: last.Wrong,
	}
}
