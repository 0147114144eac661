package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// newHandler makes the pages of one replica: get is where the category map comes from, stats what the whole fleet has
// done, and more adds further pages. It counts in t.
func newHandler(
	get func(context.Context) (categoryMap, error), stats func() stats, t *tally, log *slog.Logger, more ...func(chi.Router),
) http.Handler {
	r := chi.NewRouter()
	page(r)
	r.Get("/catalog.json", func(w http.ResponseWriter, r *http.Request) {
		t.requests.Add(1)
		m, err := get(r.Context())
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, m)
		case errors.Is(r.Context().Err(), context.Canceled): // the client has left, nobody reads an answer
		default:
			status := statusOf(err)
			log.Warn("no category map", "status", status, "error", err)
			writeJSON(w, status, failure{Status: status, Error: "the category map is not available: " + http.StatusText(status)})
		}
	})
	r.Get("/stats.json", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, stats())
	})
	for _, add := range more {
		add(r)
	}
	return r
}

// failure is the body of an answer without a category map. The cause is not in it: that is for the log.
type failure struct {
	Status int    `json:"status"`
	Error  string `json:"error"`
}

// statusOf is the status with which an HTTP client learns of an error of the cache or the origin.
func statusOf(err error) int {
	switch {
	case errors.Is(err, cacheguard.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, cacheguard.ErrOverloaded), errors.Is(err, cacheguard.ErrUnavailable), errors.Is(err, cacheguard.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default:
		return http.StatusBadGateway
	}
}

// writeJSON writes an answer. An error means that the client has left.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
