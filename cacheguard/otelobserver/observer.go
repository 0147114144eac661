package otelobserver

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// scope is the name of the instrumentation.
const scope = "github.com/cacheguard/cacheguard/cacheguard/otelobserver"

// Observer makes spans and metrics. It is safe for concurrent use.
type Observer struct {
	opts    Options
	tracer  trace.Tracer
	metrics metrics
	reading metric.Registration
	caches  *eventcount.Caches[*labels]
}

var (
	_ cacheguard.Observer   = (*Observer)(nil)
	_ cacheguard.LoadTracer = (*Observer)(nil)
	_ cacheguard.Attacher   = (*Observer)(nil)
	_ cacheguard.HitsUntold = (*Observer)(nil)
)

// New returns an Observer. Set it in the options of the caches. One Observer is enough for all
// caches of a process. The error is an error of the meter.
func New(opts Options) (*Observer, error) {
	o := &Observer{opts: opts.withDefaults()}
	o.tracer = o.opts.TracerProvider.Tracer(scope)
	o.caches = eventcount.NewCaches(eventcount.Text, newLabels)
	meter := o.opts.MeterProvider.Meter(scope)
	var err error
	if o.metrics, err = newMetrics(meter); err != nil {
		return nil, err
	}
	o.reading, err = meter.RegisterCallback(o.read, o.metrics.observed...)
	return o, err
}

// Close stops the collection of metrics. Close the caches first. The Observer still makes spans.
func (o *Observer) Close() error {
	if err := o.reading.Unregister(); err != nil {
		return errors.Join(errors.New("otelobserver: metrics are still read"), err)
	}
	return nil
}

// Observe counts an event, and makes a span for a caller's wait. See [cacheguard.Observer].
func (o *Observer) Observe(ctx context.Context, e cacheguard.Event) {
	c := o.caches.Of(e.Cache)
	n := c.Count(&e)
	d, timed := eventcount.DurationOf(&e)
	if !timed {
		return
	}
	labels := c.More.cache
	if d == eventcount.LoadTook {
		labels = c.More.of[n]
	}
	o.metrics.durations[d].Record(ctx, e.Took.Seconds(), labels)
	if d == eventcount.CallerWaited && e.Kind != cacheguard.EventLoaded {
		o.waited(ctx, e)
	}
}

// Attach registers a function that returns the Stats of a cache. The function is called when
// metrics are collected, and for the last time by detach. See [cacheguard.Attacher].
func (o *Observer) Attach(cache string, stats func() cacheguard.Stats) (detach func()) {
	return o.caches.Attach(cache, stats)
}

// LocalHitsUntold returns true, because the observer needs no events for hits of the process-local
// tier. It reads their number from Stats. See [cacheguard.HitsUntold].
func (o *Observer) LocalHitsUntold() bool { return true }
