package otelobserver

import (
	"cmp"
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
)

// counters has what each counter is called and counts, and its description if that isn't the one
// that all observers give.
var counters = [eventcount.Metrics]struct{ name, unit, description string }{
	eventcount.Requests:      {name: "requests", unit: "{request}"},
	eventcount.Misses:        {name: "misses", unit: "{miss}"},
	eventcount.Loads:         {}, // the histogram of their durations counts them by outcome
	eventcount.LateLoads:     {name: "loads.late", unit: "{load}"},
	eventcount.Fills:         {name: "fills", unit: "{fill}"},
	eventcount.LeasesAsked:   {name: "leases.asked", unit: "{lease}"},
	eventcount.LeasesGranted: {name: "leases.granted", unit: "{lease}"},
	eventcount.LeasesRenewed: {"leases.renewed", "{renewal}", "Renewals of leases."},
	eventcount.LeasesLost:    {name: "leases.lost", unit: "{lease}"},
	eventcount.CorruptValues: {name: "values.corrupt", unit: "{value}"},
	eventcount.StoreErrors:   {name: "store.errors", unit: "{error}"},
	eventcount.Overloads:     {name: "overloads", unit: "{refusal}"},
	eventcount.Changes:       {name: "changes", unit: "{change}"},
	eventcount.LateChanges:   {name: "changes.late", unit: "{change}"},
	eventcount.Compared:      {name: "compared", unit: "{comparison}"},
	eventcount.Unstored:      {name: "unstored", unit: "{response}"},
}

var gauges = [eventcount.Gauges]struct{ name, unit string }{
	eventcount.LocalEntries: {"local.entries", "{entry}"},
	eventcount.LoadsRunning: {"loads.running", "{load}"},
	eventcount.LoadsQueued:  {"loads.queued", "{load}"},
	eventcount.Flights:      {"flights", "{flight}"},
	eventcount.Callers:      {"callers", "{caller}"},
	eventcount.Unsent:       {"changes.unsent", "{change}"},
	eventcount.SwitchedOff:  {"switched_off", "{cache}"},
	eventcount.InShadow:     {"in_shadow", "{cache}"},
	eventcount.BreakersOpen: {"breakers.open", "{breaker}"},
	eventcount.Breakers:     {"breakers", "{breaker}"},
}

var durations = [eventcount.Durations]string{
	eventcount.LoadTook:     "load.duration",
	eventcount.CallerWaited: "wait.duration",
	eventcount.FleetWaited:  "fleet_wait.duration",
}

// metrics are the instruments.
type metrics struct {
	counters  [eventcount.Metrics]metric.Int64ObservableCounter // nil without a name
	gauges    [eventcount.Gauges]metric.Int64ObservableGauge
	nines     metric.Float64ObservableGauge // of caches that have compared something
	durations [eventcount.Durations]metric.Float64Histogram
	observed  []metric.Observable // all but durations
}

func newMetrics(meter metric.Meter) (m metrics, err error) {
	const prefix = "cacheguard."
	var errs []error
	made := func(o metric.Observable, err error) {
		m.observed, errs = append(m.observed, o), append(errs, err)
	}
	for i, c := range counters {
		if c.name == "" {
			continue
		}
		m.counters[i], err = meter.Int64ObservableCounter(prefix+c.name, metric.WithUnit(c.unit),
			metric.WithDescription(cmp.Or(c.description, eventcount.Table[i].Help)))
		made(m.counters[i], err)
	}
	for i, g := range gauges {
		m.gauges[i], err = meter.Int64ObservableGauge(prefix+g.name, metric.WithUnit(g.unit),
			metric.WithDescription(eventcount.GaugeTable[i].Help))
		made(m.gauges[i], err)
	}
	m.nines, err = meter.Float64ObservableGauge(prefix+"consistency", metric.WithUnit("{nine}"),
		metric.WithDescription(eventcount.NinesHelp))
	made(m.nines, err)
	for i, name := range durations {
		m.durations[i], err = meter.Float64Histogram(prefix+name, metric.WithUnit("s"),
			metric.WithDescription(eventcount.DurationHelp[i]),
			metric.WithExplicitBucketBoundaries(eventcount.Buckets...))
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}

// labels are the attributes of one cache: alone, and with the word of each number that has one.
type labels struct {
	cache metric.MeasurementOption
	of    [eventcount.Numbers]metric.MeasurementOption
}

func newLabels(cache string) *labels {
	name := cacheKey.String(cache)
	l := &labels{cache: metric.WithAttributeSet(attribute.NewSet(name))}
	for m, t := range eventcount.Table {
		key := resultKey
		if m == int(eventcount.Loads) {
			key = outcomeKey
		}
		for _, v := range t.Of {
			l.of[v.Number] = l.cache
			if v.Word != "" {
				l.of[v.Number] = metric.WithAttributeSet(attribute.NewSet(name, key.String(v.Word)))
			}
		}
	}
	return l
}

// read is called when metrics are collected. An instrument that is told of each hit would cost more
// than the counting.
func (o *Observer) read(_ context.Context, to metric.Observer) error {
	o.caches.Each(func(c *eventcount.Cache[*labels], s cacheguard.Stats, attached bool) {
		for i, counter := range o.metrics.counters {
			if counter == nil {
				continue
			}
			for _, v := range eventcount.Table[i].Of {
				to.ObserveInt64(counter, int64(c.Read(v.Number, s)), c.More.of[v.Number])
			}
		}
		if !attached {
			return
		}
		for i, g := range eventcount.GaugeTable {
			to.ObserveInt64(o.metrics.gauges[i], int64(g.Of(&s)), c.More.cache)
		}
		if s.Compared > 0 {
			to.ObserveFloat64(o.metrics.nines, s.Nines(), c.More.cache)
		}
	})
	return nil
}
