package otelobserver

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/eventcount"
)

const (
	cacheKey    = attribute.Key("cacheguard.cache")
	keyKey      = attribute.Key("cacheguard.key")
	notFoundKey = attribute.Key("cacheguard.not_found")
	staleKey    = attribute.Key("cacheguard.stale")
)

// StartLoad begins the span of a load. See [cacheguard.LoadTracer].
func (o *Observer) StartLoad(
	ctx context.Context, cache, key string,
) (context.Context, []byte, func(err error, notFound bool)) {
	ctx, span := o.tracer.Start(ctx, "cacheguard.load",
		trace.WithAttributes(o.attributes(cache, key)...))
	return ctx, note(span.SpanContext()), func(err error, notFound bool) {
		if notFound {
			span.SetAttributes(notFoundKey.Bool(true))
		}
		fail(span, err)
		span.End()
	}
}

// waited makes the span of a wait that has ended, with a link to the awaited load.
func (o *Observer) waited(ctx context.Context, e cacheguard.Event) {
	now := time.Now()
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(now.Add(-e.Took)),
		trace.WithAttributes(o.attributes(e.Cache, e.Key)...),
	}
	if load := loadOf(e.Note); load.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: load}))
	}
	_, span := o.tracer.Start(ctx, "cacheguard.wait", opts...)
	if e.NotFound {
		span.SetAttributes(notFoundKey.Bool(true))
	}
	if e.Kind == cacheguard.EventStale { // the load may have failed, but this caller got a value
		span.SetAttributes(staleKey.Bool(true))
	} else {
		fail(span, e.Err)
	}
	span.End(trace.WithTimestamp(now))
}

func (o *Observer) attributes(cache, key string) []attribute.KeyValue {
	all := []attribute.KeyValue{cacheKey.String(eventcount.Text(cache))}
	if o.opts.Keys {
		all = append(all, keyKey.String(eventcount.Text(key)))
	}
	return all
}

// fail records an error in a span. For a panic, the span's status has a fixed text, because the
// error's text has the stack, which is too long for a status.
func fail(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	text := eventcount.Text(err.Error())
	p := (*cacheguard.PanicError)(nil)
	panicked := errors.As(err, &p)
	if text != err.Error() {
		err = errors.New(text)
	}
	span.RecordError(err)
	if panicked {
		text = "load panicked"
	}
	span.SetStatus(codes.Error, text)
}

// A note is a version byte, which is 0, followed by the trace's id, the span's id and the flags. It
// has the content of a traceparent (W3C Trace Context) in half of the bytes, because each value of
// a sampled load has a note.
const noteSize = 1 + 16 + 8 + 1

// note returns the note of a span. A span that isn't sampled has no note, because the span is not
// exported.
func note(span trace.SpanContext) []byte {
	if !span.IsValid() || !span.IsSampled() {
		return nil
	}
	traceID, spanID := span.TraceID(), span.SpanID()
	b := make([]byte, 1, noteSize)
	b = append(b, traceID[:]...)
	b = append(b, spanID[:]...)
	return append(b, byte(span.TraceFlags()))
}

// loadOf returns the span that a note identifies. If this package has not made the note, the
// returned span is not valid.
func loadOf(note []byte) trace.SpanContext {
	if len(note) != noteSize || note[0] != 0 {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(note[1:17]), SpanID: trace.SpanID(note[17:25]),
		TraceFlags: trace.TraceFlags(note[25]), Remote: true,
	})
}
