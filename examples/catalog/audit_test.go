package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/examples/catalog/internal/lab"
	"github.com/cacheguard/cacheguard/middleware"
	"github.com/cacheguard/cacheguard/middleware/middlewaretest"
)

// On no page of the shop, the data that one client sends changes the response that another client
// gets.
func TestAudit(t *testing.T) {
	shown := tree{
		{ID: 1, Name: "Electronics", Children: []category{{ID: 21, ParentID: 1, Name: "Audio"}}},
	}
	there := func(context.Context) error { return nil }
	build := func() http.Handler {
		store := memstore.New(memstore.Options{})
		pages, err := middleware.New(store, middleware.Options{Name: "pages", StrongReads: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = pages.Close()
			_ = store.Close()
		})
		s := &shop{
			tree:     func(context.Context) (tree, error) { return shown, nil },
			category: func(context.Context, int) (category, error) { return shown[0], nil },
			stats:    func() stats { return stats{} },
			tally:    &tally{},
		}
		page := s.catalogRoute(pages.Handler, time.Minute, func() {})
		l := newLaboratory(lab.World{}, nil)
		return newHandler([]string{"example.com"}, labPage, l.routes, s.routes, page,
			watched(there, there, prometheus.NewRegistry(), http.NotFoundHandler()))
	}
	for _, path := range []string{
		"/catalog", "/catalog.json", "/categories/1", "/", "/?stage=none&fault=none", "/stats.json",
		"/healthz", "/lab/choices.json", "/simulator",
	} {
		t.Run(path, func(t *testing.T) {
			middlewaretest.Audit(t, build, httptest.NewRequest(http.MethodGet, path, nil))
		})
	}
}
