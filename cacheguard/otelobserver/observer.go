package otelobserver

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/gaugeset"
)

// scope is the name of the instrumentation.
const scope = "github.com/cacheguard/cacheguard/cacheguard/otelobserver"

// Observer makes spans and metrics. It is safe for concurrent use.
type Observer struct {
	opts    Options
	tracer  trace.Tracer
	metrics metrics
	reading metric.Registration
	caches  gaugeset.Set[cacheguard.Stats]

	seen atomic.Pointer[map[string]*counters] // by cache; replaced, never changed: it is read for each event
	mu   sync.Mutex                           // held while seen is replaced
}

var (
	_ cacheguard.Observer   = (*Observer)(nil)
	_ cacheguard.LoadTracer = (*Observer)(nil)
	_ cacheguard.Attacher   = (*Observer)(nil)
	_ cacheguard.HitsUntold = (*Observer)(nil)
)

// New returns an Observer. Give it to the caches' Options; one for all caches of a process will do.
// The error is the meter's.
func New(opts Options) (*Observer, error) {
	o := &Observer{opts: opts.withDefaults()}
	o.tracer = o.opts.TracerProvider.Tracer(scope)
	o.caches.Plus, o.caches.Left = plus, left
	o.seen.Store(&map[string]*counters{})
	meter := o.opts.MeterProvider.Meter(scope)
	var err error
	if o.metrics, err = newMetrics(meter); err != nil {
		return nil, err
	}
	o.reading, err = meter.RegisterCallback(o.read, o.metrics.observables()...)
	return o, err
}

// Close ends the reading of metrics. Close the caches first. Spans are made all the same.
func (o *Observer) Close() error {
	if err := o.reading.Unregister(); err != nil {
		return errors.Join(errors.New("otelobserver: metrics are still read"), err)
	}
	return nil
}

// Observe counts an event, and makes a span of a caller's wait. See cacheguard.Observer.
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
		o.metrics.load.Record(ctx, e.Took.Seconds(), c.cache, c.outcome(e))
	case cacheguard.EventWaited:
		o.metrics.fleet.Record(ctx, e.Took.Seconds(), c.cache)
	case cacheguard.EventLoaded:
		if e.Took > 0 {
			o.metrics.wait.Record(ctx, e.Took.Seconds(), c.cache)
		}
	case cacheguard.EventCoalesced, cacheguard.EventStale:
		if e.Took > 0 { // a stale value that was at hand is no wait
			o.metrics.wait.Record(ctx, e.Took.Seconds(), c.cache)
			o.waited(ctx, e)
		}
	}
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
	seen[cache] = newCounters(cache)
	o.seen.Store(&seen)
	return seen[cache]
}

// Attach has gauges of a cache read when metrics are collected. See cacheguard.Attacher.
func (o *Observer) Attach(cache string, stats func() cacheguard.Stats) (detach func()) {
	if (*o.seen.Load())[cache] == nil {
		o.add(cache)
	}
	return o.caches.Attach(cache, stats)
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
