package promobserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// counterNames has the name of each counter, and the label of its words if it has several.
var counterNames = [eventcount.Metrics]struct{ name, label string }{
	eventcount.Requests:      {"requests_total", "result"},
	eventcount.Misses:        {"misses_total", ""},
	eventcount.Loads:         {"loads_total", "outcome"},
	eventcount.LateLoads:     {"late_loads_total", ""},
	eventcount.Fills:         {"fills_total", "result"},
	eventcount.LeasesAsked:   {"lease_requests_total", ""},
	eventcount.LeasesGranted: {"lease_grants_total", ""},
	eventcount.LeasesRenewed: {"lease_renewals_total", ""},
	eventcount.LeasesLost:    {"lost_leases_total", ""},
	eventcount.CorruptValues: {"corrupt_values_total", ""},
	eventcount.StoreErrors:   {"store_errors_total", ""},
	eventcount.Overloads:     {"overloads_total", ""},
	eventcount.Changes:       {"changes_total", ""},
	eventcount.LateChanges:   {"late_changes_total", ""},
	eventcount.Compared:      {"compared_total", "result"},
	eventcount.Unstored:      {"unstored_total", "reason"},
}

var gaugeNames = [eventcount.Gauges]string{
	eventcount.LocalEntries: "local_entries",
	eventcount.LoadsRunning: "loads_running",
	eventcount.LoadsQueued:  "loads_queued",
	eventcount.Flights:      "flights",
	eventcount.Callers:      "callers",
	eventcount.Unsent:       "unsent_changes",
	eventcount.SwitchedOff:  "switched_off",
	eventcount.InShadow:     "in_shadow",
	eventcount.BreakersOpen: "breakers_open",
	eventcount.Breakers:     "breakers",
}

var durationNames = [eventcount.Durations]string{
	eventcount.LoadTook:     "load_duration_seconds",
	eventcount.CallerWaited: "wait_duration_seconds",
	eventcount.FleetWaited:  "fleet_wait_duration_seconds",
}

// metrics describes all that is exported.
type metrics struct {
	counters  [eventcount.Metrics]*prometheus.Desc
	gauges    [eventcount.Gauges]*prometheus.Desc
	nines     *prometheus.Desc // of caches that have compared something
	durations [eventcount.Durations]*prometheus.HistogramVec
}

func newMetrics(opts Options) (m metrics) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		name = prometheus.BuildFQName(opts.Namespace, "", name)
		return prometheus.NewDesc(name, help, labels, opts.ConstLabels)
	}
	for i, c := range counterNames {
		labels := []string{"cache"}
		if c.label != "" {
			labels = append(labels, c.label)
		}
		m.counters[i] = desc(c.name, eventcount.Table[i].Help, labels...)
	}
	for i, name := range gaugeNames {
		m.gauges[i] = desc(name, eventcount.GaugeTable[i].Help, "cache")
	}
	m.nines = desc("consistency_nines", eventcount.NinesHelp, "cache")
	for i, name := range durationNames {
		m.durations[i] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: opts.Namespace, Name: name, Help: eventcount.DurationHelp[i],
			ConstLabels: opts.ConstLabels, Buckets: opts.Buckets,
		}, []string{"cache"})
	}
	return m
}

// durations are those of one cache.
type durations [eventcount.Durations]prometheus.Observer

func (m *metrics) of(cache string) (d durations) {
	for i, h := range m.durations {
		d[i] = h.WithLabelValues(cache)
	}
	return d
}
