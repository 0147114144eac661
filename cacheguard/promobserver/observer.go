package promobserver

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// Observer counts what caches do. It is a prometheus.Collector, and safe for concurrent use.
type Observer struct {
	metrics  metrics
	exemplar func(context.Context, cacheguard.Event) prometheus.Labels
	caches   *eventcount.Caches[durations]
}

var (
	_ cacheguard.Observer   = (*Observer)(nil)
	_ cacheguard.Attacher   = (*Observer)(nil)
	_ cacheguard.HitsUntold = (*Observer)(nil)
	_ prometheus.Collector  = (*Observer)(nil)
)

// New returns an Observer. Give it to the caches' Options and register it with a registry; one for
// all caches of a process will do. It reports every invalid option at once.
func New(opts Options) (*Observer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	o := &Observer{metrics: newMetrics(opts), exemplar: opts.Exemplar}
	o.caches = eventcount.NewCaches(label, o.metrics.of)
	return o, nil
}

// Observe counts an event. See cacheguard.Observer.
func (o *Observer) Observe(ctx context.Context, e cacheguard.Event) {
	c := o.caches.Of(e.Cache)
	c.Count(&e)
	d, timed := eventcount.DurationOf(&e)
	if audit := d == eventcount.LoadTook && e.Audit; timed && !audit {
		o.time(ctx, c.More[d], e)
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

// Attach has gauges of a cache read when metrics are collected. See cacheguard.Attacher.
func (o *Observer) Attach(cache string, stats func() cacheguard.Stats) (detach func()) {
	return o.caches.Attach(cache, stats)
}

// LocalHitsUntold says that hits of the process-local tier are read from Stats. See
// cacheguard.HitsUntold.
func (o *Observer) LocalHitsUntold() bool { return true }
