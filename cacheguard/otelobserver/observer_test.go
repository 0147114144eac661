package otelobserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/otelobserver"
)

func newObserver(t *testing.T, opts otelobserver.Options) *otelobserver.Observer {
	t.Helper()
	o, err := otelobserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// located is an error that names its server and its cause, as those of redisstore do.
type located string

func (l located) Error() string           { return "redis:6379: " + string(l) }
func (l located) Where() (string, string) { return "redis:6379", string(l) }

// measured returns what is exported that is not 0, as in "name{value of the other attribute}".
func measured(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	add := func(name string, attrs attribute.Set, n int64) {
		other := ""
		for _, a := range attrs.ToSlice() {
			if a.Key == "cacheguard.cache" {
				if a.Value.AsString() != "a" {
					t.Errorf("%s is of the cache %q", name, a.Value.AsString())
				}
				continue
			}
			other += a.Value.String()
		}
		if n != 0 {
			found[strings.TrimPrefix(name, "cacheguard.")+"{"+other+"}"] = n
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Unit == "" || m.Description == "" {
				t.Errorf("%s has the unit %q and the description %q", m.Name, m.Unit, m.Description)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, int64(p.Count))
				}
			}
		}
	}
	return found
}

// This test lists how each kind of event is counted. A new kind must be added.
func TestEveryKindIsCounted(t *testing.T) {
	failed := errors.New("no such table")
	type events map[string]cacheguard.Event
	want := map[cacheguard.EventKind]events{
		cacheguard.EventHit: {
			"requests{hit}": {}, "requests{negative_hit}": {NotFound: true},
			"requests{local_hit}":          {Local: true},
			"requests{local_negative_hit}": {Local: true, NotFound: true},
		},
		cacheguard.EventMiss: {"misses{}": {}},
		cacheguard.EventCoalesced: {
			"requests{coalesced} wait.duration{}": {Took: 1},
			"requests{coalesced}":                 {NotFound: true},
			"requests{failed}":                    {Err: failed},
		},
		cacheguard.EventLeaseAsked:   {"leases.asked{}": {}},
		cacheguard.EventLeaseGranted: {"leases.granted{}": {}},
		cacheguard.EventWaited:       {"fleet_wait.duration{}": {Took: 1}},
		cacheguard.EventLoad: {
			"load.duration{value}": {Took: 1}, "load.duration{not_found}": {NotFound: true},
			"load.duration{error}":     {Err: failed},
			"load.duration{cancelled}": {Err: cacheguard.ErrClosed},
			"load.duration{audit}":     {Err: failed, Audit: true},
		},
		cacheguard.EventLoadLate:    {"loads.late{}": {}},
		cacheguard.EventFilled:      {"fills{stored}": {}},
		cacheguard.EventFillRefused: {"fills{refused}": {}},
		cacheguard.EventFillUnknown: {"fills{unknown}": {}},
		cacheguard.EventNotStored:   {"fills{not_stored}": {}},
		cacheguard.EventRenewed:     {"leases.renewed{}": {}},
		cacheguard.EventLeaseLost:   {"leases.lost{}": {}},
		cacheguard.EventCorrupt:     {"values.corrupt{}": {}},
		cacheguard.EventStoreError: {
			"store.errors{other}":  {Err: failed},
			"store.errors{memory}": {Err: located("its memory is full (maxmemory)")},
		},
		cacheguard.EventOverloaded: {"overloads{}": {}},
		cacheguard.EventStale: {
			"requests{stale}": {Err: failed}, "requests{stale} wait.duration{}": {Took: 1},
		},
		cacheguard.EventCompared: {
			"compared{same}": {}, "compared{meanwhile}": {Differs: cacheguard.DiffersMeanwhile},
			"compared{missed}": {Differs: cacheguard.DiffersMissed},
			"":                 {Differs: cacheguard.Differences},
		},
		cacheguard.EventSampled: {"": {}},
		cacheguard.EventUnstored: {
			"unstored{private}": {Reason: cacheguard.ReasonPrivate},
			"unstored{store}":   {Reason: cacheguard.ReasonStore}, "": {},
		},
		cacheguard.EventLoaded: {
			"requests{loaded} wait.duration{}": {Took: 1}, "requests{failed}": {Err: failed},
		},
	}
	for kind := cacheguard.EventKind(1); !strings.HasPrefix(kind.String(), "EventKind("); kind++ {
		if len(want[kind]) == 0 {
			t.Errorf("nobody has thought of how to count %v", kind)
		}
		for counted, e := range want[kind] {
			reader := sdkmetric.NewManualReader()
			o := newObserver(t, otelobserver.Options{
				MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
			})
			e.Kind, e.Cache, e.Key = kind, "a", "secret"
			o.Observe(t.Context(), e)
			var got []string
			for name := range measured(t, reader) {
				got = append(got, name)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != counted {
				t.Errorf("%v %+v is counted in %q, want %q", kind, e, got, counted)
			}
		}
	}
}

// Gauges of several caches of one name add up, also with what was not told one by one; Close ends
// the reading.
func TestGauges(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o := newObserver(t, otelobserver.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	stats := func() cacheguard.Stats {
		return cacheguard.Stats{
			LocalEntries: 1, LocalHits: 2, LocalNegativeHits: 3, LoadsRunning: 4, LoadsQueued: 5,
			Flights: 6, Callers: 7, BreakersOpen: 8, Breakers: 9,
			Unsent: 10, SentLate: 11, SwitchedOff: 12, InShadow: 13,
		}
	}
	o.Attach("a", stats)
	detach := o.Attach("a", stats)
	o.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventHit, Cache: "a", Local: true})
	check := func(times int64) {
		t.Helper()
		got := measured(t, reader)
		for name, n := range map[string]int64{
			"local.entries{}": times, "requests{local_hit}": 5, "requests{local_negative_hit}": 6,
			"loads.running{}": 4 * times, "loads.queued{}": 5 * times, "flights{}": 6 * times,
			"callers{}":        7 * times,
			"changes.unsent{}": 10 * times, "changes.late{}": 22, "switched_off{}": 12 * times,
			"in_shadow{}":     13 * times,
			"breakers.open{}": 8 * times, "breakers{}": 9 * times,
		} {
			if got[name] != n {
				t.Errorf("%s is %d, want %d", name, got[name], n)
			}
		}
	}
	check(2)
	detach()
	check(1)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if got := measured(t, reader); len(got) != 0 {
		t.Errorf("after Close: %v", got)
	}
}

// A wait is linked to a load that was sampled and to nothing else, and has the key only if asked
// to.
func TestWaits(t *testing.T) {
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	if _, note, _ := newObserver(t,
		otelobserver.Options{TracerProvider: never}).StartLoad(t.Context(), "a", "k"); note != nil {
		t.Errorf("a load that is not sampled has the note %x", note)
	}
	for _, keys := range []bool{false, true} {
		exporter := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		o := newObserver(t, otelobserver.Options{TracerProvider: provider, Keys: keys})
		_, note, end := o.StartLoad(t.Context(), "a", "k")
		end(&cacheguard.PanicError{Value: "x", Stack: []byte("stack")}, false)
		load := spanOf(exporter.GetSpans()[0])
		if load.Failed != "load panicked" {
			t.Errorf("the load's status is %q", load.Failed)
		}
		if got := load.Attributes["cacheguard.key"]; (got == "k") != keys {
			t.Errorf("with Keys %v a load has the key %q", keys, got)
		}
		for _, c := range []struct {
			note   []byte
			linked bool
		}{
			{note, true}, {nil, false}, {note[1:], false}, {append([]byte{1}, note[1:]...), false},
			{make([]byte, len(note)), false},
		} {
			exporter.Reset()
			o.Observe(t.Context(), cacheguard.Event{
				Kind: cacheguard.EventStale, Cache: "a", Key: "k", Took: time.Second, Note: c.note,
				Err: errors.New("no such table"),
			})
			wait := spanOf(exporter.GetSpans()[0])
			if linked := slices.Equal(wait.Links,
				[]string{load.Trace + "/" + load.ID}); linked != c.linked ||
				len(wait.Links) > 0 && !linked {
				t.Errorf("a wait with the note %x is linked to %v; want it linked: %v", c.note,
					wait.Links, c.linked)
			}
			if wait.Failed != "" || wait.Attributes["cacheguard.stale"] != "true" ||
				wait.End-wait.Start != time.Second {
				t.Errorf("the wait of a caller who got a stale value: %+v", wait)
			}
			if got := wait.Attributes["cacheguard.key"]; (got == "k") != keys {
				t.Errorf("with Keys %v a wait has the key %q", keys, got)
			}
		}
		exporter.Reset()
		for _, e := range []cacheguard.Event{
			{Kind: cacheguard.EventStale}, {Kind: cacheguard.EventHit},
			{Kind: cacheguard.EventWaited, Took: 1}, {Kind: cacheguard.EventLoaded, Took: 1},
		} {
			e.Cache = "a"
			o.Observe(t.Context(), e)
		}
		if n := len(exporter.GetSpans()); n != 0 {
			t.Errorf("%d spans of what is no caller's wait", n)
		}
	}
}

// Names, keys and errors are any bytes. What is exported is UTF-8, because an exporter of OTLP
// drops all spans or metrics of a batch that has another text.
func TestOnlyUTF8IsExported(t *testing.T) {
	exporter, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	o := newObserver(t, otelobserver.Options{
		Keys:           true,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	wrong := errors.New("load: \xff")
	_, _, end := o.StartLoad(t.Context(), "a\xff", "\xff")
	end(wrong, false)
	o.Observe(t.Context(), cacheguard.Event{
		Kind: cacheguard.EventWaited, Cache: "a\xff", Key: "\xff", Took: time.Second, Err: wrong,
	})
	o.Attach("a\xff", func() cacheguard.Stats { return cacheguard.Stats{Changes: 1} })
	var texts []string
	note := func(all ...attribute.KeyValue) {
		for _, a := range all {
			texts = append(texts, a.Value.String())
		}
	}
	for _, span := range exporter.GetSpans() {
		note(span.Attributes...)
		texts = append(texts, span.Status.Description)
		for _, event := range span.Events {
			note(event.Attributes...)
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					note(p.Attributes.ToSlice()...)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					note(p.Attributes.ToSlice()...)
				}
			}
		}
	}
	replaced := 0
	for _, text := range texts {
		if !utf8.ValidString(text) {
			t.Errorf("exported: %q", text)
		}
		if strings.Contains(text, "\ufffd") {
			replaced++
		}
	}
	if replaced < 8 { // two spans with a cache, a key, a status and an exception
		t.Errorf("%d replaced texts in %q", replaced, texts)
	}
}

// A hit costs no allocation.
func TestHitsAllocateNothing(t *testing.T) {
	o := newObserver(t, otelobserver.Options{
		TracerProvider: sdktrace.NewTracerProvider(), MeterProvider: sdkmetric.NewMeterProvider(),
	})
	ctx := context.Background()
	for _, kind := range []cacheguard.EventKind{
		cacheguard.EventHit, cacheguard.EventMiss, cacheguard.EventStale,
	} {
		if n := testing.AllocsPerRun(100, func() {
			o.Observe(ctx, cacheguard.Event{Kind: kind, Cache: "a"})
		}); n != 0 {
			t.Errorf("%v costs %v allocations", kind, n)
		}
	}
}
