package promobserver

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/gaugeset"
	"github.com/cacheguard/cacheguard/internal/striped"
)

// Observer counts what caches do. It is a prometheus.Collector, and safe for concurrent use.
type Observer struct {
	metrics  metrics
	exemplar func(context.Context, cacheguard.Event) prometheus.Labels
	caches   gaugeset.Set[cacheguard.Stats]

	seen atomic.Pointer[map[string]*counters] // by cache; replaced, never changed: it is read for each event
	mu   sync.Mutex                           // held while seen is replaced
}

var (
	_ cacheguard.Observer   = (*Observer)(nil)
	_ cacheguard.Attacher   = (*Observer)(nil)
	_ cacheguard.HitsUntold = (*Observer)(nil)
	_ prometheus.Collector  = (*Observer)(nil)
)

// counters are those of one cache.
type counters struct {
	cache string           // as a label
	hits  striped.Counters // of the numbers below hits
	count [numbers]atomic.Uint64

	load, wait, fleet prometheus.Observer
}

// New returns an Observer. Give it to the caches' Options and register it with a registry; one for
// all caches of a process will do. It reports every invalid option at once.
func New(opts Options) (*Observer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	o := &Observer{metrics: newMetrics(opts), exemplar: opts.Exemplar}
	o.caches.Plus, o.caches.Left = plus, left
	o.seen.Store(&map[string]*counters{})
	return o, nil
}

// Observe counts an event. See cacheguard.Observer.
func (o *Observer) Observe(ctx context.Context, e cacheguard.Event) {
	c := (*o.seen.Load())[e.Cache]
	if c == nil {
		c = o.add(e.Cache)
	}
	switch n, counts := numberOf(e); {
	case n < hits:
		c.hits.Add(uint8(n))
		return
	case counts:
		c.count[n].Add(1)
	}
	switch e.Kind {
	case cacheguard.EventLoad:
		if !e.Audit {
			o.time(ctx, c.load, e)
		}
	case cacheguard.EventWaited:
		o.time(ctx, c.fleet, e)
	case cacheguard.EventCoalesced, cacheguard.EventLoaded, cacheguard.EventStale:
		if e.Took > 0 { // a stale value that was at hand is no wait
			o.time(ctx, c.wait, e)
		}
	}
}

// time notes how long something took, with what leads to its trace.
func (o *Observer) time(ctx context.Context, h prometheus.Observer, e cacheguard.Event) {
	var labels prometheus.Labels
	if o.exemplar != nil {
		labels = o.exemplar(ctx, e)
	}
	defer func() { _ = recover() }() // labels that it doesn't take: it has counted the value by then
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(e.Took.Seconds(), labels)
}

// add makes the counters of a cache, if they aren't there by now.
func (o *Observer) add(cache string) *counters {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := *o.seen.Load()
	if c := old[cache]; c != nil {
		return c
	}
	seen := maps.Clone(old)
	c := seen[label(cache)] // a name that can't be a label shares the counters of the one that it becomes
	if c == nil {
		c = o.metrics.newCounters(label(cache))
		seen[c.cache] = c
	}
	seen[cache] = c
	o.seen.Store(&seen)
	return c
}

// Attach has gauges of a cache read when metrics are collected. See cacheguard.Attacher.
func (o *Observer) Attach(cache string, stats func() cacheguard.Stats) (detach func()) {
	if (*o.seen.Load())[cache] == nil {
		o.add(cache)
	}
	return o.caches.Attach(label(cache), stats)
}

// LocalHitsUntold says that hits of the process-local tier are read from Stats. See
// cacheguard.HitsUntold.
func (o *Observer) LocalHitsUntold() bool { return true }

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

// left is what still counts of a cache that was closed.
func left(last cacheguard.Stats) cacheguard.Stats {
	return cacheguard.Stats{
		LocalHits: last.LocalHits, LocalNegativeHits: last.LocalNegativeHits, Changes: last.Changes, SentLate: last.SentLate,
		Compared: last.Compared, Wrong: last.Wrong,
	}
}
