package otelobserver

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/striped"
)

// number is one counter of a cache: a metric and, if it has one besides that of the cache, the
// value of its attribute.
type number uint8

const (
	hit number = iota
	negativeHit
	localHit
	localNegativeHit
	hits // how many of them are hits
)

const (
	stale number = hits + iota
	coalesced
	loaded
	failed
	miss
	leaseAsked
	leaseGranted
	leaseRenewed
	leaseLost
	loadLate
	fillStored
	fillRefused
	fillUnknown
	notStored
	corrupt
	storeError
	overloaded
	changed
	sentLate
	compared                                             // and on, by difference
	unstored = compared + number(cacheguard.Differences) // and on, by reason
	numbers  = unstored + number(cacheguard.Reasons)
)

const (
	resultKey  = attribute.Key("cacheguard.result")
	outcomeKey = attribute.Key("cacheguard.outcome")
)

// tables has the counters in the order of the metrics, and of the values of their attributes.
var tables = []struct {
	name, description, unit string
	of                      []labelled
}{
	{"cacheguard.requests", "Answers to callers, by how they were found; failed: an error that is no 'not found'.", "{request}", []labelled{
		{hit, "hit"}, {negativeHit, "negative_hit"}, {localHit, "local_hit"}, {localNegativeHit, "local_negative_hit"},
		{stale, "stale"}, {coalesced, "coalesced"}, {loaded, "loaded"}, {failed, "failed"},
	}},
	{"cacheguard.misses", "Reads of the store that found nothing to serve.", "{miss}", []labelled{{miss, ""}}},
	{"cacheguard.loads.late", "Loads that returned after they had been given up.", "{load}", []labelled{{loadLate, ""}}},
	{"cacheguard.fills", "Results of loads by whether they were stored; refused: the lease was lost; not_stored: by the load's wish, or it can't be.",
		"{fill}", []labelled{
			{fillStored, "stored"}, {fillRefused, "refused"}, {fillUnknown, "unknown"}, {notStored, "not_stored"},
		}},
	{"cacheguard.leases.asked", "Leases that were asked for.", "{lease}", []labelled{{leaseAsked, ""}}},
	{"cacheguard.leases.granted", "Leases that were granted.", "{lease}", []labelled{{leaseGranted, ""}}},
	{"cacheguard.leases.renewed", "Renewals of leases.", "{renewal}", []labelled{{leaseRenewed, ""}}},
	{"cacheguard.leases.lost", "Leases that were lost under a running load.", "{lease}", []labelled{{leaseLost, ""}}},
	{"cacheguard.values.corrupt", "Values in the store that could not be read and counted as misses.", "{value}", []labelled{{corrupt, ""}}},
	{"cacheguard.store.errors", "Steps in the store that failed.", "{error}", []labelled{{storeError, ""}}},
	{"cacheguard.overloads", "Callers and loads that were turned away.", "{refusal}", []labelled{{overloaded, ""}}},
	{"cacheguard.changes", "Changes of keys, tags and whole caches that this process has made: invalidations, writes.", "{change}", []labelled{{changed, ""}}},
	{"cacheguard.changes.late", "Invalidations and other changes that the store was told of later than when they were made.", "{change}", []labelled{{sentLate, ""}}},
	{"cacheguard.compared", "Answers that were compared with the origin, by what has come of that: the words of Difference.",
		"{comparison}", differences()},
	{"cacheguard.unstored", "Responses of package middleware that were not stored, by why.", "{response}", reasons()},
}

func differences() (all []labelled) {
	for d := range cacheguard.Differences {
		all = append(all, labelled{compared + number(d), d.String()})
	}
	return all
}

func reasons() (all []labelled) {
	for r := cacheguard.Reason(1); r < cacheguard.Reasons; r++ {
		all = append(all, labelled{unstored + number(r), r.String()})
	}
	return all
}

type labelled struct {
	number
	value string
}

// gauges are read when they are collected.
var gauges = []struct {
	name, description, unit string
	of                      func(cacheguard.Stats) int
}{
	{"cacheguard.local.entries", "Entries of the process-local tier.", "{entry}", func(s cacheguard.Stats) int { return s.LocalEntries }},
	{"cacheguard.loads.running", "Loads that run.", "{load}", func(s cacheguard.Stats) int { return s.LoadsRunning }},
	{"cacheguard.loads.queued", "Loads that wait for their turn.", "{load}", func(s cacheguard.Stats) int { return s.LoadsQueued }},
	{"cacheguard.flights", "Keys that are looked up, waited for or loaded.", "{flight}", func(s cacheguard.Stats) int { return s.Flights }},
	{"cacheguard.callers", "Callers who wait for flights.", "{caller}", func(s cacheguard.Stats) int { return s.Callers }},
	{"cacheguard.changes.unsent", "Invalidations and other changes that the store has not been told of yet.", "{change}", func(s cacheguard.Stats) int { return s.Unsent }},
	{"cacheguard.switched_off", "Caches that a Switch has switched off.", "{cache}", func(s cacheguard.Stats) int { return s.SwitchedOff }},
	{"cacheguard.in_shadow", "Caches that a Switch has in shadow.", "{cache}", func(s cacheguard.Stats) int { return s.InShadow }},
	{"cacheguard.breakers.open", "Circuit breakers of the store that are open.", "{breaker}", func(s cacheguard.Stats) int { return s.BreakersOpen }},
	{"cacheguard.breakers", "Circuit breakers of the store.", "{breaker}", func(s cacheguard.Stats) int { return s.Breakers }},
}

// buckets of durations, in seconds.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// numberOf returns what an event counts as, if it is of a kind that is counted.
func numberOf(e cacheguard.Event) (n number, counts bool) {
	switch e.Kind {
	case cacheguard.EventHit:
		return hitNumber(e), true
	case cacheguard.EventCoalesced:
		return unlessFailed(coalesced, e), true
	case cacheguard.EventLoaded:
		return unlessFailed(loaded, e), true
	case cacheguard.EventCompared:
		return compared + number(e.Differs), e.Differs < cacheguard.Differences
	case cacheguard.EventUnstored:
		return unstored + number(e.Reason), e.Reason > 0 && e.Reason < cacheguard.Reasons
	}
	if int(e.Kind) < len(plain) && plain[e.Kind] != 0 {
		return plain[e.Kind], true
	}
	return numbers, false
}

// plain has the kinds that count as one number, whatever else the event says.
var plain = [...]number{
	cacheguard.EventMiss: miss, cacheguard.EventStale: stale,
	cacheguard.EventLeaseAsked: leaseAsked, cacheguard.EventLeaseGranted: leaseGranted,
	cacheguard.EventRenewed: leaseRenewed, cacheguard.EventLeaseLost: leaseLost,
	cacheguard.EventLoadLate: loadLate,
	cacheguard.EventFilled:   fillStored, cacheguard.EventFillRefused: fillRefused,
	cacheguard.EventFillUnknown: fillUnknown, cacheguard.EventNotStored: notStored,
	cacheguard.EventCorrupt: corrupt, cacheguard.EventStoreError: storeError, cacheguard.EventOverloaded: overloaded,
}

func hitNumber(e cacheguard.Event) number {
	switch {
	case e.Local && e.NotFound:
		return localNegativeHit
	case e.Local:
		return localHit
	case e.NotFound:
		return negativeHit
	}
	return hit
}

func unlessFailed(n number, e cacheguard.Event) number {
	if e.Err != nil {
		return failed
	}
	return n
}

// metrics are the instruments.
type metrics struct {
	counters          []metric.Int64ObservableCounter // as in tables
	gauges            []metric.Int64ObservableGauge   // as in gauges
	nines             metric.Float64ObservableGauge   // of caches that have compared something
	load, wait, fleet metric.Float64Histogram
}

func newMetrics(meter metric.Meter) (m metrics, err error) {
	var errs []error
	for _, t := range tables {
		c, err := meter.Int64ObservableCounter(t.name, metric.WithDescription(t.description), metric.WithUnit(t.unit))
		m.counters, errs = append(m.counters, c), append(errs, err)
	}
	for _, g := range gauges {
		c, err := meter.Int64ObservableGauge(g.name, metric.WithDescription(g.description), metric.WithUnit(g.unit))
		m.gauges, errs = append(m.gauges, c), append(errs, err)
	}
	nines, err := meter.Float64ObservableGauge("cacheguard.consistency", metric.WithUnit("{nine}"),
		metric.WithDescription("How consistent the answers that were compared with the origin have been, in nines."))
	m.nines, errs = nines, append(errs, err)
	timed := func(name, description string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	m.load = timed("cacheguard.load.duration", "How long loads took.")
	m.wait = timed("cacheguard.wait.duration", "How long callers waited for a load, their own or somebody else's.")
	m.fleet = timed("cacheguard.fleet_wait.duration", "How long this process waited for a load in another one.")
	return m, errors.Join(errs...)
}

func (m *metrics) observables() (all []metric.Observable) {
	for _, c := range m.counters {
		all = append(all, c)
	}
	for _, g := range m.gauges {
		all = append(all, g)
	}
	return append(all, m.nines)
}

// counters are those of one cache. They are read when metrics are collected: an instrument that is
// told of each hit would cost more than the counting.
type counters struct {
	hits  striped.Counters // of the numbers below hits
	count [numbers]atomic.Uint64

	cache                         metric.MeasurementOption          // the attribute, for all metrics without another one
	labels                        [numbers]metric.MeasurementOption // and with it
	value, notFound, error, audit metric.MeasurementOption          // the other one of loads
}

func newCounters(cache string) *counters {
	name := cacheKey.String(cache)
	c := &counters{
		cache:    metric.WithAttributeSet(attribute.NewSet(name)),
		value:    metric.WithAttributeSet(attribute.NewSet(outcomeKey.String("value"))),
		notFound: metric.WithAttributeSet(attribute.NewSet(outcomeKey.String("not_found"))),
		error:    metric.WithAttributeSet(attribute.NewSet(outcomeKey.String("error"))),
		audit:    metric.WithAttributeSet(attribute.NewSet(outcomeKey.String("audit"))),
	}
	for _, t := range tables {
		for _, l := range t.of {
			c.labels[l.number] = c.cache
			if l.value != "" {
				c.labels[l.number] = metric.WithAttributeSet(attribute.NewSet(name, resultKey.String(l.value)))
			}
		}
	}
	return c
}

// outcome is how a load ended.
func (c *counters) outcome(e cacheguard.Event) metric.MeasurementOption {
	switch {
	case e.Audit:
		return c.audit
	case e.Err != nil:
		return c.error
	case e.NotFound:
		return c.notFound
	}
	return c.value
}

// read is called when metrics are collected.
func (o *Observer) read(_ context.Context, to metric.Observer) error {
	untold := map[string]cacheguard.Stats{}
	seen := *o.seen.Load()
	o.caches.Each(func(cache string, s cacheguard.Stats) {
		untold[cache] = s
		for i, g := range gauges {
			if c := seen[cache]; c != nil {
				to.ObserveInt64(o.metrics.gauges[i], int64(g.of(s)), c.cache)
			}
		}
		if c := seen[cache]; c != nil && s.Compared > 0 {
			to.ObserveFloat64(o.metrics.nines, s.Nines(), c.cache)
		}
	})
	for cache, c := range seen {
		for i, t := range tables {
			for _, l := range t.of {
				to.ObserveInt64(o.metrics.counters[i], int64(c.read(l.number, untold[cache])), c.labels[l.number])
			}
		}
	}
	return nil
}

func (c *counters) read(n number, untold cacheguard.Stats) uint64 {
	switch {
	case n == localHit:
		return c.hits.Sum(uint8(n)) + untold.LocalHits
	case n == localNegativeHit:
		return c.hits.Sum(uint8(n)) + untold.LocalNegativeHits
	case n == changed:
		return untold.Changes
	case n == sentLate:
		return untold.SentLate
	case n < hits:
		return c.hits.Sum(uint8(n))
	}
	return c.count[n].Load()
}
