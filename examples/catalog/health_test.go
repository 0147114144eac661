package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
)

func TestHealth(t *testing.T) {
	// Otherwise a busy machine could take longer than healthTimeout.
	synctest.Test(t, func(t *testing.T) {
		there, away := func(ctx context.Context) error {
			return ctx.Err()
		}, func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("secret")
		}
		over := make(chan struct{})
		defer close(over)
		// Ignores its context, and ends only with the test.
		deaf := func(context.Context) error { <-over; return nil }
		for _, c := range []struct {
			database, redis func(context.Context) error
			status          int
			want            health
		}{
			{there, there, http.StatusOK, health{"ok", "ok", "ok"}},
			{there, away, http.StatusOK, health{"ok", "ok", "unreachable"}},
			{away, there, http.StatusServiceUnavailable, health{"no database", "unreachable", "ok"}},
			{there, deaf, http.StatusOK, health{"ok", "ok", "unreachable"}},
		} {
			r := chi.NewRouter()
			watched(c.database, c.redis, prometheus.NewRegistry(), http.NotFoundHandler())(r)
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			var got health
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.status ||
				got != c.want || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("status %d, %s; want %d, %+v", w.Code, w.Body, c.status, c.want)
			}
		}
	})
}

// A replica works without Redis, and its health says that Redis is missing.
func TestHealthWithoutRedis(t *testing.T) {
	redis := miniredis.RunT(t)
	c := start(t, 1, "-origin-delay", "0s", "-redis", redis.Addr())
	client := newClient(t)
	redis.Close()
	var h health
	if err := json.Unmarshal(get(t, client, c.urls[0]+"/healthz"), &h); err != nil ||
		h.Redis != "unreachable" || h.Status != "ok" {
		t.Errorf("%+v, %v", h, err)
	}
	get(t, client, c.urls[0]+"/catalog.json")
}

func TestMetrics(t *testing.T) {
	c := start(t, 2, "-origin-delay", "0s")
	client := newClient(t)
	get(t, client, c.urls[0]+"/catalog.json")
	for i, want := range []string{
		`cacheguard_loads_total{cache="catalog",outcome="value"} 1`,
		`cacheguard_loads_total{cache="catalog",outcome="value"} 0`,
	} {
		if text := string(get(t, client, c.urls[i]+"/metrics")); !strings.Contains(text, want) {
			t.Errorf("replica %d lacks %s:\n%s", i+1, want, text)
		}
	}
}
