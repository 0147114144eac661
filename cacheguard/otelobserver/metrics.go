package otelobserver

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

const (
	resultKey  = attribute.Key("cacheguard.result")
	outcomeKey = attribute.Key("cacheguard.outcome")
	causeKey   = attribute.Key("cacheguard.cause")
)

// metrics has the instruments.
type metrics struct {
	// As in eventcount.Metrics; nil if the metric has no name.
	counters  []metric.Int64ObservableCounter
	gauges    []metric.Int64ObservableGauge // as in eventcount.Gauges
	nines     metric.Float64ObservableGauge
	durations []metric.Float64Histogram // as in eventcount.Durations
	observed  []metric.Observable       // all but durations
}

func newMetrics(meter metric.Meter) (m metrics, err error) {
	const prefix = "cacheguard."
	var errs []error
	for _, c := range eventcount.Metrics {
		if c.OTel == "" {
			m.counters = append(m.counters, nil)
			continue
		}
		if c.OTel == "leases.renewed" { // the unit of this metric is renewals, not leases
			c.Help = "Renewals of leases."
		}
		made, err := meter.Int64ObservableCounter(prefix+c.OTel,
			metric.WithUnit(c.Unit), metric.WithDescription(c.Help))
		m.counters, m.observed = append(m.counters, made), append(m.observed, made)
		errs = append(errs, err)
	}
	for _, g := range eventcount.Gauges {
		made, err := meter.Int64ObservableGauge(prefix+g.OTel,
			metric.WithUnit(g.Unit), metric.WithDescription(g.Help))
		m.gauges, m.observed = append(m.gauges, made), append(m.observed, made)
		errs = append(errs, err)
	}
	nines := eventcount.Nines
	m.nines, err = meter.Float64ObservableGauge(prefix+nines.OTel,
		metric.WithUnit(nines.Unit), metric.WithDescription(nines.Help))
	m.observed, errs = append(m.observed, m.nines), append(errs, err)
	for _, d := range eventcount.Durations {
		made, err := meter.Float64Histogram(prefix+d.OTel,
			metric.WithUnit(d.Unit), metric.WithDescription(d.Help),
			metric.WithExplicitBucketBoundaries(eventcount.Buckets...))
		m.durations, errs = append(m.durations, made), append(errs, err)
	}
	return m, errors.Join(errs...)
}

// labels are the attribute sets of one cache: one with the cache alone, and for each number that
// has a word one with the cache and this word.
type labels struct {
	cache metric.MeasurementOption
	of    [eventcount.Numbers]metric.MeasurementOption
}

func newLabels(cache string) *labels {
	name := cacheKey.String(cache)
	l := &labels{cache: metric.WithAttributeSet(attribute.NewSet(name))}
	for _, m := range eventcount.Metrics {
		key := resultKey
		switch m.Label {
		case eventcount.Outcome:
			key = outcomeKey
		case eventcount.Cause:
			key = causeKey
		}
		for _, v := range m.Of {
			l.of[v.Number] = l.cache
			if v.Word != "" {
				l.of[v.Number] = metric.WithAttributeSet(attribute.NewSet(name, key.String(v.Word)))
			}
		}
	}
	return l
}

// read is called when metrics are collected. The instruments are not updated at each hit, because
// an update would cost more than the observer's own counters.
func (o *Observer) read(_ context.Context, to metric.Observer) error {
	o.caches.Each(func(c *eventcount.Cache[*labels], s cacheguard.Stats, attached bool) {
		for i, counter := range o.metrics.counters {
			if counter == nil {
				continue
			}
			for _, v := range eventcount.Metrics[i].Of {
				to.ObserveInt64(counter, int64(c.Read(v.Number, s)), c.More.of[v.Number])
			}
		}
		if !attached {
			return
		}
		for i, g := range eventcount.Gauges {
			to.ObserveInt64(o.metrics.gauges[i], int64(g.Of(&s)), c.More.cache)
		}
		if s.Compared > 0 {
			to.ObserveFloat64(o.metrics.nines, s.Nines(), c.More.cache)
		}
	})
	return nil
}
