package promobserver

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Describe names all metrics. See prometheus.Collector.
func (o *Observer) Describe(descs chan<- *prometheus.Desc) {
	m := &o.metrics
	for _, d := range m.counters {
		descs <- d
	}
	for _, d := range m.gauges {
		descs <- d
	}
	descs <- m.nines
	for _, h := range []*prometheus.HistogramVec{m.load, m.wait, m.fleet} {
		h.Describe(descs)
	}
}

// Collect reads all metrics. See prometheus.Collector.
func (o *Observer) Collect(out chan<- prometheus.Metric) {
	untold := map[string]cacheguard.Stats{}
	o.caches.Each(func(cache string, s cacheguard.Stats) {
		untold[cache] = s
		for i, g := range gauges {
			out <- prometheus.MustNewConstMetric(o.metrics.gauges[i], prometheus.GaugeValue, float64(g.of(s)), cache)
		}
		if s.Compared > 0 {
			out <- prometheus.MustNewConstMetric(o.metrics.nines, prometheus.GaugeValue, s.Nines(), cache)
		}
	})
	for cache, c := range *o.seen.Load() {
		if cache == c.cache {
			c.collect(&o.metrics, untold[cache], out)
		}
	}
	for _, h := range []*prometheus.HistogramVec{o.metrics.load, o.metrics.wait, o.metrics.fleet} {
		h.Collect(out)
	}
}

func (c *counters) read(n number) uint64 {
	if n < hits {
		return c.hits.Sum(uint8(n))
	}
	return c.count[n].Load()
}

func (c *counters) collect(m *metrics, untold cacheguard.Stats, out chan<- prometheus.Metric) {
	for i, t := range tables {
		for _, l := range t.of {
			n := c.read(l.number)
			switch l.number {
			case localHit:
				n += untold.LocalHits
			case localNegativeHit:
				n += untold.LocalNegativeHits
			case changed:
				n += untold.Changes
			case sentLate:
				n += untold.SentLate
			}
			labels := []string{c.cache}
			if t.label != "" {
				labels = append(labels, l.value)
			}
			out <- prometheus.MustNewConstMetric(m.counters[i], prometheus.CounterValue, float64(n), labels...)
		}
	}
}

// label is a cache's name as a label: a registry refuses all metrics of a collector for one that is
// not UTF-8.
func label(cache string) string { return strings.ToValidUTF8(cache, "\ufffd") }
