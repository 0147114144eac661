package otelobserver

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options configures an Observer. The zero value of a field means its default.
type Options struct {
	// TracerProvider makes the spans. Default: the global provider at the time of New.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. Default: the global provider at the time of New.
	MeterProvider metric.MeterProvider

	// Keys adds the key to spans, as the attribute cacheguard.key. Bytes that are not UTF-8 are
	// replaced by U+FFFD. Metrics never have the key. Default: spans have no key, because keys
	// often contain data that doesn't belong in a trace, such as names, addresses or tokens.
	Keys bool
}

func (o Options) withDefaults() Options {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	return o
}
