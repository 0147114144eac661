package main

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// healthTimeout is how long a service may take to say that it is there.
const healthTimeout = time.Second

// health is the body of /healthz.
type health struct {
	Status   string `json:"status"` // "ok", or "no database": then nothing can be loaded
	Database string `json:"database"`
	Redis    string `json:"redis"` // without it the replica goes on, with its own flights only
}

// watched serves a replica's health, its metrics and what its caches are doing, for those who watch
// it.
func watched(database, redis func(context.Context) error, metrics prometheus.Gatherer, status http.Handler) func(chi.Router) {
	return func(r chi.Router) {
		r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
			defer cancel()
			ofDatabase, ofRedis := stateOf(ctx, database), stateOf(ctx, redis)
			h, status := health{Status: "ok", Database: <-ofDatabase, Redis: <-ofRedis}, http.StatusOK
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

// stateOf asks a service whether it is there, and sends its state, in a word. Why it is so is for
// the log. One that is silent must not pass for two, so each has all the time; and go-redis doesn't
// look at ctx while it waits for an answer.
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
