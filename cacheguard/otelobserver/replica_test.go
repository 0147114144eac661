package otelobserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/otelobserver"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
)

const (
	replicaEnv = "CACHEGUARD_OTEL_REPLICA"
	patience   = time.Minute // for what has to happen
)

// replicaConfig has the settings of a process.
type replicaConfig struct {
	Redis, Prefix string
	Callers       int
	Fail          bool
}

// replicaReport is a line of a process' output.
type replicaReport struct {
	Lease string // "held" or "granted"
	Spans []span
}

// span is a span, fit for another process.
type span struct {
	Name       string
	Trace, ID  string
	Parent     string
	Links      []string // trace and span
	Failed     string   // the status, if it is an error
	Attributes map[string]string
	Process    int
	Start, End time.Duration // since began, by the clock that nobody sets
	Ended      time.Time     // the end by the machine's clock, which all processes share
}

// began is where a process' times begin.
var began = time.Now()

// replicaMain is the whole life of a replica.
func replicaMain(config string) int {
	var rc replicaConfig
	if err := json.Unmarshal([]byte(config), &rc); err != nil {
		fmt.Fprintln(os.Stderr, "replica: configuration:", err)
		return 2
	}
	rdb := redis.NewClient(&redis.Options{Addr: rc.Redis, ContextTimeoutEnabled: true})
	defer rdb.Close()
	store, err := redisstore.New(rdb,
		redisstore.Options{Prefix: rc.Prefix, OpTimeout: 20 * time.Second})
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		return 1
	}
	defer store.Close()
	open := make(chan struct{})
	go func() { // one byte, or the end of the input
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(open)
	}()
	out := json.NewEncoder(os.Stdout)
	spans, err := stampede(store, rc, open, func(lease string) {
		_ = out.Encode(replicaReport{Lease: lease})
	})
	if err == nil {
		err = out.Encode(replicaReport{Spans: spans})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		return 1
	}
	return 0
}

// leaseReports is a store that says how each lease was answered.
type leaseReports struct {
	cacheguard.Store
	report func(lease string)
}

func (s leaseReports) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	answer, err := s.Store.Lease(ctx, k, ask)
	switch {
	case err != nil:
	case answer.State == cacheguard.LeaseGranted:
		s.report("granted")
	case answer.State == cacheguard.LeaseHeld:
		s.report("held")
	}
	return answer, err
}

// gate is an observer that holds up the leader, which found nothing, until all other callers wait
// for it.
type gate struct {
	leads  func()
	joined *sync.WaitGroup
}

func (g gate) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventMiss {
		g.leads()
		g.joined.Wait()
	}
}

// joining is a context that reports when a goroutine begins to wait for its end.
type joining struct {
	context.Context
	waits func()
}

func (c joining) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

var errOrigin = errors.New("the origin is down")

// stampede is callers of one cold key in one replica, each with a request of its own. The load,
// wherever it runs, waits for open to be closed.
func stampede(
	store cacheguard.Store, rc replicaConfig, open <-chan struct{}, report func(lease string),
) ([]span, error) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	observer, err := otelobserver.New(otelobserver.Options{TracerProvider: provider})
	if err != nil {
		return nil, err
	}
	var joined sync.WaitGroup
	joined.Add(rc.Callers - 1)
	leader := make(chan struct{})
	leads := sync.OnceFunc(func() { close(leader) })
	cache, err := cacheguard.New(leaseReports{store, report}, cacheguard.Options[string]{
		Name: "product", TTL: time.Hour, LeaseTTL: patience, LoadTimeout: patience,
		Observer: cacheguard.Observers(observer, gate{leads, &joined}),
	})
	if err != nil {
		return nil, err
	}
	defer cache.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := store.Warm(ctx); err != nil {
		return nil, err
	}
	tracer := provider.Tracer("test")
	get := func(ctx context.Context) error {
		ctx, request := tracer.Start(ctx, "request")
		defer request.End()
		_, err := cache.Get(ctx, "42", func(ctx context.Context) (string, error) {
			_, query := tracer.Start(ctx, "query")
			defer query.End()
			select {
			case <-open:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			if rc.Fail {
				return "", errOrigin
			}
			return "lamp", nil
		})
		if rc.Fail && err != nil {
			return nil
		}
		return err
	}
	errs := make([]error, rc.Callers)
	var calling sync.WaitGroup
	calling.Go(func() {
		errs[0] = get(ctx)
		leads() // or the others would wait for ever for one that has failed
	})
	<-leader
	for i := range rc.Callers - 1 {
		waits := sync.OnceFunc(joined.Done)
		calling.Go(func() { errs[i+1] = get(joining{ctx, waits}) })
	}
	calling.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	_ = cache.Close() // all loads are over
	var spans []span
	for _, s := range exporter.GetSpans() {
		spans = append(spans, spanOf(s))
	}
	return spans, nil
}

func spanOf(s tracetest.SpanStub) span {
	out := span{
		Name: s.Name, Trace: s.SpanContext.TraceID().String(), ID: s.SpanContext.SpanID().String(),
		Failed: s.Status.Description, Attributes: attributes(s.Attributes), Process: os.Getpid(),
		Start: s.StartTime.Sub(began), End: s.EndTime.Sub(began), Ended: s.EndTime,
	}
	if s.Parent.IsValid() {
		out.Parent = s.Parent.SpanID().String()
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, name(l.SpanContext))
	}
	return out
}

func name(s trace.SpanContext) string { return s.TraceID().String() + "/" + s.SpanID().String() }

func attributes(all []attribute.KeyValue) map[string]string {
	found := map[string]string{}
	for _, a := range all {
		found[string(a.Key)] = a.Value.String()
	}
	return found
}

// named returns the spans of a name.
func named(spans []span, name string) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.Name != name })
}
