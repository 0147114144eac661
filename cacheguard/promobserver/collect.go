package promobserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

// Describe describes all metrics. See [prometheus.Collector].
func (o *Observer) Describe(descs chan<- *prometheus.Desc) {
	m := &o.metrics
	for _, d := range m.counters {
		descs <- d
	}
	for _, d := range m.gauges {
		descs <- d
	}
	descs <- m.nines
	for _, h := range m.durations {
		h.Describe(descs)
	}
}

// Collect reads all metrics. See [prometheus.Collector].
func (o *Observer) Collect(out chan<- prometheus.Metric) {
	o.caches.Each(func(c *eventcount.Cache[durations], s cacheguard.Stats, gauges bool) {
		tell := func(d *prometheus.Desc, t prometheus.ValueType, n float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, t, n, append([]string{c.Name}, labels...)...)
		}
		for i, m := range eventcount.Metrics {
			for _, v := range m.Of {
				var word []string
				if v.Word != "" {
					word = []string{v.Word}
				}
				tell(o.metrics.counters[i], prometheus.CounterValue, float64(c.Read(v.Number, s)),
					word...)
			}
		}
		if !gauges {
			return
		}
		for i, g := range eventcount.Gauges {
			tell(o.metrics.gauges[i], prometheus.GaugeValue, float64(g.Of(&s)))
		}
		if s.Compared > 0 {
			tell(o.metrics.nines, prometheus.GaugeValue, s.Nines())
		}
	})
	for _, h := range o.metrics.durations {
		h.Collect(out)
	}
}
