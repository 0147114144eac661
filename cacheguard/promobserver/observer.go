package promobserver

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// Observer counts the events of caches. It is a [prometheus.Collector], and safe for concurrent
// use.
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

// New returns an Observer. Set it in the options of the caches and register it with a registry. One
// Observer is enough for all caches of a process. New reports all invalid options in one error.
func New(opts Options) (*Observer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	o := &Observer{metrics: newMetrics(opts), exemplar: opts.Exemplar}
	o.caches = eventcount.NewCaches(eventcount.Text, o.metrics.of)
	return o, nil
}

// Observe counts an event. See [cacheguard.Observer].
func (o *Observer) Observe(ctx context.Context, e cacheguard.Event) {
	c := o.caches.Of(e.Cache)
	c.Count(&e)
	d, timed := eventcount.DurationOf(&e)
	if audit := d == eventcount.LoadTook && e.Audit; timed && !audit {
		o.time(ctx, c.More[d], e)
	}
}

// time records the duration of a load or a wait, with the labels of its trace.
func (o *Observer) time(ctx context.Context, h prometheus.Observer, e cacheguard.Event) {
	var labels prometheus.Labels
	if o.exemplar != nil {
		labels = o.exemplar(ctx, e)
	}
	// For labels that Prometheus refuses; the value has already been counted.
	defer func() { _ = recover() }()
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(e.Took.Seconds(), labels)
}

// Attach registers a function that returns the Stats of a cache. The function is called when
// metrics are collected, and for the last time by detach. See [cacheguard.Attacher].
func (o *Observer) Attach(cache string, stats func() cacheguard.Stats) (detach func()) {
	return o.caches.Attach(cache, stats)
}

// LocalHitsUntold returns true, because the observer needs no events for hits of the process-local
// tier. It reads their number from Stats. See [cacheguard.HitsUntold].
func (o *Observer) LocalHitsUntold() bool { return true }
