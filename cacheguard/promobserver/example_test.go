package promobserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
)

func Example() {
	observer, err := promobserver.New(promobserver.Options{})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(observer)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{}) // for /metrics

	store := memstore.New(memstore.Options{})
	defer store.Close()
	products, err := cacheguard.New(store,
		cacheguard.Options[string]{Name: "product", Observer: observer})
	if err != nil {
		panic(err)
	}
	defer products.Close()
	for range 3 {
		_, _ = products.Get(context.Background(), "42", func(context.Context) (string, error) {
			return "lamp", nil
		})
	}

	page := httptest.NewRecorder()
	metrics.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "cacheguard_requests_total") &&
			!strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// cacheguard_requests_total{cache="product",result="hit"} 2
	// cacheguard_requests_total{cache="product",result="loaded"} 1
}
