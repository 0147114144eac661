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

// watched serves a replica's health and its metrics, for those who watch it.
func watched(database, redis func(context.Context) error, metrics prometheus.Gatherer) func(chi.Router) {
	return func(r chi.Router) {
		r.Get("/healthz", func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
			defer cancel()
			h, status := health{Status: "ok", Database: state(database(ctx)), Redis: state(redis(ctx))}, http.StatusOK
			if h.Database != "ok" {
				h.Status, status = "no database", http.StatusServiceUnavailable
			}
			w.Header().Set("Cache-Control", "no-store")
			writeJSON(w, status, h)
		})
		r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	}
}

// state is a service's, in a word. Why it is so is for the log.
func state(err error) string {
	if err != nil {
		return "unreachable"
	}
	return "ok"
}
