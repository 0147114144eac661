package otelobserver

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options configures an Observer. The zero value of a field means its default.
type Options struct {
	// TracerProvider makes the spans. Default: the global one at the time of New.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. Default: the global one at the time of New.
	MeterProvider metric.MeterProvider

	// Keys has spans say the key, as cacheguard.key. Default: they don't, for keys often have what
	// belongs into no trace: names, addresses, tokens. A metric never has it.
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
