package otelobserver_test

import (
	"context"
	"fmt"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/otelobserver"
)

func Example() {
	exported := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
	observer, err := otelobserver.New(otelobserver.Options{TracerProvider: provider})
	if err != nil {
		panic(err)
	}
	defer observer.Close()

	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store,
		cacheguard.Options[string]{Name: "product", Observer: observer})
	if err != nil {
		panic(err)
	}
	defer products.Close()

	// The first request loads, the second one waits for that load.
	loading := make(chan struct{})
	second := make(chan struct{})
	request := func(ctx context.Context, load cacheguard.LoadFunc[string]) {
		ctx, span := provider.Tracer("shop").Start(ctx, "request")
		defer span.End()
		_, _ = products.Get(ctx, "42", load)
	}
	var requests sync.WaitGroup
	requests.Go(func() {
		request(context.Background(), func(context.Context) (string, error) {
			close(loading)
			<-second
			return "lamp", nil
		})
	})
	<-loading
	requests.Go(func() {
		request(joining{context.Background(), sync.OnceFunc(func() { close(second) })}, unused)
	})
	requests.Wait()

	var load tracetest.SpanStub
	for _, s := range exported.GetSpans() {
		if s.Name == "cacheguard.load" {
			load = s
		}
	}
	for _, s := range exported.GetSpans() {
		for _, link := range s.Links {
			fmt.Println(s.Name, "is linked to the load:",
				link.SpanContext.SpanID() == load.SpanContext.SpanID())
		}
	}
	// Output:
	// cacheguard.wait is linked to the load: true
}

// unused is a load that is not called.
func unused(context.Context) (string, error) { return "another", nil }
