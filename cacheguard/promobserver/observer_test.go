package promobserver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
)

// located is an error that names its server and its cause, as those of redisstore do.
type located string

func (l located) Error() string           { return "redis:6379: " + string(l) }
func (l located) Where() (string, string) { return "redis:6379", string(l) }

func newObserver(t *testing.T, opts promobserver.Options) *promobserver.Observer {
	t.Helper()
	o, err := promobserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// samples returns what is exported that is not 0, as in "name{label=value}", without buckets.
func samples(t *testing.T, o prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
			if v != 0 {
				found[strings.TrimPrefix(f.GetName(), "cacheguard_")+"{"+strings.Join(labels, ",")+
					"}"] = v
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
			"requests_total{cache=a,result=hit}":                {},
			"requests_total{cache=a,result=negative_hit}":       {NotFound: true},
			"requests_total{cache=a,result=local_hit}":          {Local: true},
			"requests_total{cache=a,result=local_negative_hit}": {Local: true, NotFound: true},
		},
		cacheguard.EventMiss: {"misses_total{cache=a}": {}},
		cacheguard.EventCoalesced: {
			"requests_total{cache=a,result=coalesced} wait_duration_seconds{cache=a}": {Took: 1},
			"requests_total{cache=a,result=coalesced}": {
				NotFound: true,
			},
			"requests_total{cache=a,result=failed}": {
				Err: failed,
			},
		},
		cacheguard.EventLeaseAsked:   {"lease_requests_total{cache=a}": {}},
		cacheguard.EventLeaseGranted: {"lease_grants_total{cache=a}": {}},
		cacheguard.EventWaited:       {"fleet_wait_duration_seconds{cache=a}": {Took: 1}},
		cacheguard.EventLoad: {
			"load_duration_seconds{cache=a} loads_total{cache=a,outcome=value}": {Took: 1},
			"load_duration_seconds{cache=a} loads_total{cache=a,outcome=not_found}": {
				NotFound: true,
			},
			"load_duration_seconds{cache=a} loads_total{cache=a,outcome=error}": {Err: failed},
			"load_duration_seconds{cache=a} loads_total{cache=a,outcome=cancelled}": {
				Err: cacheguard.ErrClosed,
			},
			"loads_total{cache=a,outcome=audit}": {
				Err: failed, Audit: true,
			},
		},
		cacheguard.EventLoadLate:    {"late_loads_total{cache=a}": {}},
		cacheguard.EventFilled:      {"fills_total{cache=a,result=stored}": {}},
		cacheguard.EventFillRefused: {"fills_total{cache=a,result=refused}": {}},
		cacheguard.EventFillUnknown: {"fills_total{cache=a,result=unknown}": {}},
		cacheguard.EventNotStored:   {"fills_total{cache=a,result=not_stored}": {}},
		cacheguard.EventRenewed:     {"lease_renewals_total{cache=a}": {}},
		cacheguard.EventLeaseLost:   {"lost_leases_total{cache=a}": {}},
		cacheguard.EventCorrupt:     {"corrupt_values_total{cache=a}": {}},
		cacheguard.EventStoreError: {
			"store_errors_total{cache=a,cause=other}": {Err: failed},
			"store_errors_total{cache=a,cause=rights}": {
				Err: fmt.Errorf("a key: %w", located("the Redis user lacks a right")),
			},
		},
		cacheguard.EventOverloaded: {"overloads_total{cache=a}": {}},
		cacheguard.EventStale: {
			"requests_total{cache=a,result=stale}":                                {Err: failed},
			"requests_total{cache=a,result=stale} wait_duration_seconds{cache=a}": {Took: 1},
		},
		cacheguard.EventCompared: {
			"compared_total{cache=a,result=same}":      {},
			"compared_total{cache=a,result=meanwhile}": {Differs: cacheguard.DiffersMeanwhile},
			"compared_total{cache=a,result=missed}":    {Differs: cacheguard.DiffersMissed},
			"":                                         {Differs: cacheguard.Differences},
		},
		cacheguard.EventSampled: {"": {}},
		cacheguard.EventUnstored: {
			"unstored_total{cache=a,reason=private}":      {Reason: cacheguard.ReasonPrivate},
			"unstored_total{cache=a,reason=no freshness}": {Reason: cacheguard.ReasonNoFreshness},
			"": {Reason: cacheguard.Reasons},
		},
		cacheguard.EventLoaded: {
			"requests_total{cache=a,result=loaded} wait_duration_seconds{cache=a}": {Took: 1},
			"requests_total{cache=a,result=failed}":                                {Err: failed},
		},
	}
	kinds := cacheguard.EventKind(1)
	for ; !strings.HasPrefix(kinds.String(), "EventKind("); kinds++ {
		if len(want[kinds]) == 0 {
			t.Errorf("nobody has thought of how to count %v", kinds)
		}
		for counted, e := range want[kinds] {
			o := newObserver(t, promobserver.Options{})
			e.Kind, e.Cache = kinds, "a"
			o.Observe(t.Context(), e)
			var got []string
			for name, n := range samples(t, o) {
				if n != 1 {
					t.Errorf("one %v counts as %v in %s", kinds, n, name)
				}
				got = append(got, name)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != counted {
				t.Errorf("%v %+v is counted in %q, want %q", kinds, e, got, counted)
			}
		}
	}
	o := newObserver(t, promobserver.Options{})
	o.Observe(t.Context(), cacheguard.Event{Kind: kinds, Cache: "a"})
	if got := samples(t, o); len(got) != 0 {
		t.Errorf("a kind of a later version is counted in %v", got)
	}
}

// What is exported follows the conventions for names, and there is no more of it for a million keys
// than for one.
func TestConventions(t *testing.T) {
	o := newObserver(t, promobserver.Options{})
	series := func(keys int) int {
		for key := range keys {
			for kind := cacheguard.EventKind(1); !strings.HasPrefix(kind.String(),
				"EventKind("); kind++ {
				o.Observe(t.Context(), cacheguard.Event{
					Kind: kind, Cache: "a", Key: fmt.Sprint(key), Took: time.Duration(key),
				})
			}
		}
		return testutil.CollectAndCount(o)
	}
	one := series(1)
	if many := series(1000); many != one {
		t.Errorf("%d series for one key, %d for 1000", one, many)
	}
	o.Attach("a", func() cacheguard.Stats { return cacheguard.Stats{Compared: 1} })
	problems, err := testutil.CollectAndLint(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A cache tells its observer of everything that a caller gets, and of what runs.
func TestCache(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	ctx := context.Background()
	if err := store.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	o := newObserver(t, promobserver.Options{})
	opts := cacheguard.Options[string]{
		Name: "a", Observer: o, Local: cacheguard.Local[string]{Entries: 10},
	}
	cache, err := cacheguard.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	again, err := cacheguard.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	loading, finish := make(chan struct{}), make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() {
		_, _ = cache.Get(ctx, "lamp", func(context.Context) (string, error) {
			close(loading)
			<-finish
			return "lamp", nil
		})
	})
	<-loading
	check := func(what string, want map[string]float64) {
		t.Helper()
		got := samples(t, o)
		for name, n := range want {
			if got[name] != n {
				t.Errorf("%s: %s is %v, want %v", what, name, got[name], n)
			}
		}
	}
	check("while loading", map[string]float64{
		"loads_running{cache=a}": 1, "flights{cache=a}": 1, "callers{cache=a}": 1,
		"misses_total{cache=a}": 1,
	})
	close(finish)
	calling.Wait()
	nothing := func(context.Context) (string, error) { return "", cacheguard.ErrNotFound }
	for range 3 { // a load and two hits; by the other cache a hit of the store and two more
		_, _ = cache.Get(ctx, "nothing", nothing)
		_, _ = again.GetResult(ctx, "nothing", nothing)
		_, _ = again.Get(ctx, "lamp", nothing)
	}
	all := map[string]float64{
		"requests_total{cache=a,result=loaded}":             2,
		"requests_total{cache=a,result=hit}":                1,
		"requests_total{cache=a,result=negative_hit}":       1,
		"requests_total{cache=a,result=local_hit}":          2,
		"requests_total{cache=a,result=local_negative_hit}": 4,
		"loads_total{cache=a,outcome=value}":                1,
		"loads_total{cache=a,outcome=not_found}":            1,
		"local_entries{cache=a}":                            4,
		"loads_running{cache=a}":                            0,
	}
	check("two caches", all)
	_ = again.Close()
	all["local_entries{cache=a}"] = 2
	check("one is closed", all)
	_ = cache.Close()
	all["local_entries{cache=a}"] = 0
	check("both are closed", all)
}

// A name that is no label is exported all the same, and spoils nothing.
func TestNameThatIsNoLabel(t *testing.T) {
	o := newObserver(t, promobserver.Options{})
	for _, cache := range []string{"a\xff", "a\xfe", "a\ufffd", "b"} {
		o.Attach(cache, func() cacheguard.Stats { return cacheguard.Stats{LoadsRunning: 1} })
		o.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventMiss, Cache: cache})
	}
	got := samples(t, o)
	for name, n := range map[string]float64{
		"misses_total{cache=a\ufffd}": 3, "misses_total{cache=b}": 1,
		"loads_running{cache=a\ufffd}": 3,
	} {
		if got[name] != n {
			t.Errorf("%s is %v, want %v", name, got[name], n)
		}
	}
}

func TestOptions(t *testing.T) {
	_, err := promobserver.New(promobserver.Options{
		Namespace:   "no-name",
		ConstLabels: prometheus.Labels{"cache": "x", "no label": "x", "__x": "x"},
		Buckets:     []float64{1, 1},
	})
	if err == nil {
		t.Fatal("invalid options were taken")
	}
	for _, part := range []string{"Namespace", `"cache"`, `"no label"`, `"__x"`, "Buckets"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error doesn't say that %s is wrong: %v", part, err)
		}
	}
	o := newObserver(t,
		promobserver.Options{Namespace: "shop", ConstLabels: prometheus.Labels{"zone": "eu"}})
	o.Observe(t.Context(), cacheguard.Event{Kind: cacheguard.EventLoad, Cache: "a"})
	if got := samples(t, o); got["shop_loads_total{cache=a,outcome=value,zone=eu}"] != 1 ||
		got["shop_load_duration_seconds{cache=a,zone=eu}"] != 1 {
		t.Errorf("with a namespace and a label: %v", got)
	}
}

// Every label of the package's own is refused as a label of the user, because a metric that has it
// twice can't be collected.
func TestOwnLabelsAreRefused(t *testing.T) {
	o := newObserver(t, promobserver.Options{})
	for kind := range cacheguard.EventKind(100) {
		o.Observe(t.Context(), cacheguard.Event{Kind: kind, Cache: "a", Reason: 1})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{"le": true}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				own[pair.GetName()] = true
			}
		}
	}
	for name := range own {
		if _, err := promobserver.New(promobserver.Options{
			ConstLabels: prometheus.Labels{name: "x"},
		}); err == nil {
			t.Errorf("the label %s was taken", name)
		}
	}
	if len(own) != 6 {
		t.Errorf("the labels are %v; are all on the list of Options.ConstLabels?", own)
	}
}

// An event costs no allocation once its cache is known.
func TestNoAllocations(t *testing.T) {
	o := newObserver(t, promobserver.Options{})
	ctx := t.Context()
	for kind := cacheguard.EventKind(1); !strings.HasPrefix(kind.String(), "EventKind("); kind++ {
		e := cacheguard.Event{Kind: kind, Cache: "a", Took: 1}
		if n := testing.AllocsPerRun(100, func() { o.Observe(ctx, e) }); n != 0 {
			t.Errorf("%v costs %v allocations", kind, n)
		}
	}
}

// Observations have the labels of their trace. Invalid labels don't lose the observation.
func TestExemplars(t *testing.T) {
	type id struct{}
	o := newObserver(t,
		promobserver.Options{Exemplar: func(
			ctx context.Context, e cacheguard.Event,
		) prometheus.Labels {
			trace, _ := ctx.Value(id{}).(string)
			if trace == "" {
				return nil
			}
			return prometheus.Labels{"trace_id": trace, "kind": e.Kind.String()}
		}})
	for _, trace := range []string{"abc", "", strings.Repeat("x", 200), "\xff"} {
		o.Observe(context.WithValue(t.Context(), id{}, trace),
			cacheguard.Event{Kind: cacheguard.EventLoad, Cache: "a", Took: time.Second})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range families {
		if f.GetName() != "cacheguard_load_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 4 {
			t.Errorf("%d loads were counted, want 4", h.GetSampleCount())
		}
		for _, b := range h.GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				found = append(found, l.GetName()+"="+l.GetValue())
			}
		}
	}
	if want := []string{
		"kind=load", "trace_id=abc",
	}; !slices.Equal(slices.Sorted(slices.Values(found)), want) {
		t.Errorf("exemplars have %q, want %q", found, want)
	}
}
