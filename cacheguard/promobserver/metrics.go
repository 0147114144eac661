package promobserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// number is one counter of a cache: a metric and, if it has one besides that of the cache, the
// value of its label.
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
	loadValue
	loadNotFound
	loadError
	loadAudit
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

// tables has the counters in the order of the metrics, and of the values of their labels.
var tables = []struct {
	name, help, label string
	of                []labelled
}{
	{"requests_total", "Answers to callers, by how they were found; failed: an error that is no 'not found'.", "result", []labelled{
		{hit, "hit"}, {negativeHit, "negative_hit"}, {localHit, "local_hit"}, {localNegativeHit, "local_negative_hit"},
		{stale, "stale"}, {coalesced, "coalesced"}, {loaded, "loaded"}, {failed, "failed"},
	}},
	{"misses_total", "Reads of the store that found nothing to serve.", "", []labelled{{miss, ""}}},
	{"loads_total", "Loads that ended, by what they found; audit: those of an audit, for which nobody waits.", "outcome", []labelled{
		{loadValue, "value"}, {loadNotFound, "not_found"}, {loadError, "error"}, {loadAudit, "audit"},
	}},
	{"late_loads_total", "Loads that returned after they had been given up.", "", []labelled{{loadLate, ""}}},
	{"fills_total", "Results of loads by whether they were stored; refused: the lease was lost; not_stored: by the load's wish, or it can't be.",
		"result", []labelled{
			{fillStored, "stored"}, {fillRefused, "refused"}, {fillUnknown, "unknown"}, {notStored, "not_stored"},
		}},
	{"lease_requests_total", "Leases that were asked for.", "", []labelled{{leaseAsked, ""}}},
	{"lease_grants_total", "Leases that were granted.", "", []labelled{{leaseGranted, ""}}},
	{"lease_renewals_total", "Leases that were renewed.", "", []labelled{{leaseRenewed, ""}}},
	{"lost_leases_total", "Leases that were lost under a running load.", "", []labelled{{leaseLost, ""}}},
	{"corrupt_values_total", "Values in the store that could not be read and counted as misses.", "", []labelled{{corrupt, ""}}},
	{"store_errors_total", "Steps in the store that failed.", "", []labelled{{storeError, ""}}},
	{"overloads_total", "Callers and loads that were turned away.", "", []labelled{{overloaded, ""}}},
	{"changes_total", "Changes of keys, tags and whole caches that this process has made: invalidations, writes.", "", []labelled{{changed, ""}}},
	{"late_changes_total", "Invalidations and other changes that the store was told of later than when they were made.", "", []labelled{{sentLate, ""}}},
	{"compared_total", "Answers that were compared with the origin, by what has come of that: the words of Difference.",
		"result", differences()},
	{"unstored_total", "Responses of package middleware that were not stored, by why.", "reason", reasons()},
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
	name, help string
	of         func(cacheguard.Stats) int
}{
	{"local_entries", "Entries of the process-local tier.", func(s cacheguard.Stats) int { return s.LocalEntries }},
	{"loads_running", "Loads that run.", func(s cacheguard.Stats) int { return s.LoadsRunning }},
	{"loads_queued", "Loads that wait for their turn.", func(s cacheguard.Stats) int { return s.LoadsQueued }},
	{"flights", "Keys that are looked up, waited for or loaded.", func(s cacheguard.Stats) int { return s.Flights }},
	{"callers", "Callers who wait for flights.", func(s cacheguard.Stats) int { return s.Callers }},
	{"unsent_changes", "Invalidations and other changes that the store has not been told of yet.", func(s cacheguard.Stats) int { return s.Unsent }},
	{"switched_off", "Caches that a Switch has switched off.", func(s cacheguard.Stats) int { return s.SwitchedOff }},
	{"in_shadow", "Caches that a Switch has in shadow.", func(s cacheguard.Stats) int { return s.InShadow }},
	{"breakers_open", "Circuit breakers of the store that are open.", func(s cacheguard.Stats) int { return s.BreakersOpen }},
	{"breakers", "Circuit breakers of the store.", func(s cacheguard.Stats) int { return s.Breakers }},
}

// numberOf returns what an event counts as, if it is of a kind that is known.
func numberOf(e cacheguard.Event) (n number, known bool) {
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
	case cacheguard.EventLoad:
		return loadNumber(e), true
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

func loadNumber(e cacheguard.Event) number {
	switch {
	case e.Audit:
		return loadAudit
	case e.Err != nil:
		return loadError
	case e.NotFound:
		return loadNotFound
	}
	return loadValue
}

// metrics describes all that is exported.
type metrics struct {
	counters []*prometheus.Desc // as in tables
	gauges   []*prometheus.Desc // as in gauges
	nines    *prometheus.Desc   // of caches that have compared something

	load, wait, fleet *prometheus.HistogramVec
}

func newMetrics(opts Options) (m metrics) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(opts.Namespace, "", name), help, labels, opts.ConstLabels)
	}
	for _, t := range tables {
		labels := []string{"cache"}
		if t.label != "" {
			labels = append(labels, t.label)
		}
		m.counters = append(m.counters, desc(t.name, t.help, labels...))
	}
	for _, g := range gauges {
		m.gauges = append(m.gauges, desc(g.name, g.help, "cache"))
	}
	m.nines = desc("consistency_nines", "How consistent the answers that were compared with the origin have been, in nines.", "cache")
	timed := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: opts.Namespace, Name: name, Help: help, ConstLabels: opts.ConstLabels, Buckets: opts.Buckets,
		}, []string{"cache"})
	}
	m.load = timed("load_duration_seconds", "How long loads took.")
	m.wait = timed("wait_duration_seconds", "How long callers waited for a load, their own or somebody else's.")
	m.fleet = timed("fleet_wait_duration_seconds", "How long this process waited for a load in another one.")
	return m
}

func (m *metrics) newCounters(cache string) *counters {
	return &counters{
		cache: cache,
		load:  m.load.WithLabelValues(cache), wait: m.wait.WithLabelValues(cache), fleet: m.fleet.WithLabelValues(cache),
	}
}
