package main

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// healthTimeout is the time limit for a service's answer to a ping.
const healthTimeout = time.Second

// health is the body of /healthz.
type health struct {
	// "ok", or "no database": without the database no value can be loaded.
	Status   string `json:"status"`
	Database string `json:"database"`
	// Without Redis the replica goes on, but only with its own flights.
	Redis string `json:"redis"`
}

// watched serves a replica's health, its metrics and the state of its caches, for monitoring.
func watched(
	database, redis func(context.Context) error, metrics prometheus.Gatherer, status http.Handler,
) func(chi.Router) {
	return func(r chi.Router) {
		r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
			defer cancel()
			ofDatabase, ofRedis := stateOf(ctx, database), stateOf(ctx, redis)
			h, status := health{Status: "ok", Database: <-ofDatabase, Redis: <-ofRedis},
				http.StatusOK
			if h.Database != "ok" {
				h.Status, status = "no database", http.StatusServiceUnavailable
			}
			w.Header().Set("Cache-Control", "no-store")
			writeJSON(w, status, h)
		})
		r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
		r.Handle("/status", status)
		r.Handle("/status/*", status)
	}
}

// stateOf pings a service, and sends its state as one word, without the reason. Each service has
// the whole time, so that one silent service doesn't make the other service look silent, too. When
// ctx ends, stateOf doesn't wait for the ping any longer, because go-redis ignores ctx while it
// waits for an answer.
func stateOf(ctx context.Context, ping func(context.Context) error) <-chan string {
	answered := make(chan error, 1)
	go func() { answered <- ping(ctx) }()
	state := make(chan string, 1)
	go func() {
		select {
		case err := <-answered:
			if err == nil {
				state <- "ok"
				return
			}
		case <-ctx.Done():
		}
		state <- "unreachable"
	}()
	return state
}
