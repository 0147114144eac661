// Package eventcount counts the events of caches, for observers that export the counts. It defines
// the counter (Number) that each kind of event adds to, the metrics made of these counters, their
// names, and the gauges that are exported beside the metrics.
package eventcount

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Caches has all caches of one observer. M is the type of the observer's own data for each cache.
type Caches[M any] struct {
	more  func(name string) M
	label func(cache string) string

	// known has each Cache by its Name, and also by the name of each cache that is counted in it.
	// The map is read for each event, so it is never changed, only replaced.
	known atomic.Pointer[map[string]*Cache[M]]
	mu    sync.Mutex // held while known is replaced; guards attached, open and left of each Cache
}

// Cache is one cache, or all caches that are exported under one name.
type Cache[M any] struct {
	Counters
	Name string
	More M

	attached bool // whether Attach was ever called
	open     map[*func() cacheguard.Stats]bool
	left     cacheguard.Stats // sum of the closed caches
}

// NewCaches returns new Caches. They call more to make the observer's own data for each cache.
// Caches whose names get the same label are one Cache.
func NewCaches[M any](label func(cache string) string, more func(name string) M) *Caches[M] {
	c := &Caches[M]{label: label, more: more}
	c.known.Store(&map[string]*Cache[M]{})
	return c
}

// Text returns a text in which bytes that are not UTF-8 are replaced. With such bytes in a label or
// an attribute, a Prometheus registry refuses all metrics of its collector, and an exporter of
// OTLP drops all spans or metrics of its batch.
func Text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// Of returns the cache with this name, and makes it if necessary.
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

// Attach registers a function that returns the stats of a cache. detach removes the function.
// detach may be called twice. The stats of several caches of one name are added. See
// [cacheguard.Attacher].
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

// Each calls tell with every cache that was ever used, by name, with the sum of its stats. gauges
// is true if stats were ever attached. Each reads the stats under the lock, as detach does.
// Otherwise a cache that is detached meanwhile could be counted twice or not at all.
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

// counted returns the part of a closed cache's stats that stays in the sums: the counters without
// the gauges.
func counted(last cacheguard.Stats) cacheguard.Stats {
	return cacheguard.Stats{
		LocalHits: last.LocalHits, LocalNegativeHits: last.LocalNegativeHits,
		Changes: last.Changes, SentLate: last.SentLate,
		Compared: last.Compared, Wrong: last.Wrong,
	}
}
