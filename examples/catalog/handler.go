package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// newHandler makes the router of one replica. The replica answers requests for these host names and
// for its addresses. Each route for GET also answers HEAD, so that curl -I shows what caches did.
//
// The browser of a user in the shop's network must not carry out requests of another site. So each
// request that changes data or begins a run is a POST, and a POST must come from the shop's own
// pages.
func newHandler(names []string, routes ...func(chi.Router)) http.Handler {
	r := chi.NewRouter()
	r.Use(known(names...), http.NewCrossOriginProtection().Handler, middleware.GetHead)
	for _, add := range routes {
		add(r)
	}
	return r
}

// shop contains the handlers of one replica.
type shop struct {
	tree     func(context.Context) (tree, error)
	category func(ctx context.Context, id int) (category, error)
	rename   func(ctx context.Context, id int, name string) error
	stats    func() stats
	tally    *tally
	log      *slog.Logger
}

func (s *shop) routes(r chi.Router) {
	r.Get("/catalog.json", s.catalogJSON)
	r.Get("/categories/{id}", s.getCategory)
	r.Post("/categories/{id}", s.renameCategory)
	r.Get("/stats.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, s.stats())
	})
}

func (s *shop) catalogJSON(w http.ResponseWriter, r *http.Request) {
	s.tally.requests.Add(1)
	t, err := s.tree(r.Context())
	if err != nil {
		s.fail(w, r, "the category map", err)
		return
	}
	writeJSON(w, http.StatusOK, t.byID())
}

// fail answers a request whose value could not be read.
func (s *shop) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		return // the client has left and reads no answer
	}
	status := statusOf(err)
	if status == http.StatusNotFound {
		refuse(w, status, what+" does not exist")
		return
	}
	s.log.Warn("a request failed", "path", r.URL.Path, "status", status, "error", err)
	refuse(w, status, what+" is not available: "+http.StatusText(status))
}

// failure is the body of an error response. It doesn't contain the cause, which is only logged.
type failure struct {
	Status int    `json:"status"`
	Error  string `json:"error"`
}

func refuse(w http.ResponseWriter, status int, why string) {
	writeJSON(w, status, failure{Status: status, Error: why})
}

// statusOf returns the HTTP status for an error of the cache or the origin.
func statusOf(err error) int {
	switch {
	case errors.Is(err, cacheguard.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, cacheguard.ErrOverloaded), errors.Is(err, cacheguard.ErrUnavailable),
		errors.Is(err, cacheguard.ErrClosed):
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
