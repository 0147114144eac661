package promobserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// metrics describes all exported metrics.
type metrics struct {
	counters  []*prometheus.Desc // as in eventcount.Metrics
	gauges    []*prometheus.Desc // as in eventcount.Gauges
	nines     *prometheus.Desc
	durations []*prometheus.HistogramVec // as in eventcount.Durations
}

func newMetrics(opts Options) (m metrics) {
	desc := func(name eventcount.Name, help string, labels ...string) *prometheus.Desc {
		full := prometheus.BuildFQName(opts.Namespace, "", name.Prometheus)
		return prometheus.NewDesc(full, help, labels, opts.ConstLabels)
	}
	for _, c := range eventcount.Metrics {
		labels := []string{"cache"}
		if c.Label != "" {
			labels = append(labels, c.Label)
		}
		m.counters = append(m.counters, desc(c.Name, c.Help, labels...))
	}
	for _, g := range eventcount.Gauges {
		m.gauges = append(m.gauges, desc(g.Name, g.Help, "cache"))
	}
	m.nines = desc(eventcount.Nines.Name, eventcount.Nines.Help, "cache")
	for _, d := range eventcount.Durations {
		m.durations = append(m.durations, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: opts.Namespace, Name: d.Prometheus, Help: d.Help,
			ConstLabels: opts.ConstLabels, Buckets: opts.Buckets,
		}, []string{"cache"}))
	}
	return m
}

// durations are the histograms of one cache.
type durations []prometheus.Observer

func (m *metrics) of(cache string) (d durations) {
	for _, h := range m.durations {
		d = append(d, h.WithLabelValues(cache))
	}
	return d
}
