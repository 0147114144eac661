package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// ask requests a path from a handler whose category map comes from get. It returns the answer and
// the log.
func ask(
	ctx context.Context, path string, get func(context.Context) (tree, error), t *tally,
) (*httptest.ResponseRecorder, string) {
	var logged bytes.Buffer
	s := &shop{tree: get, tally: t, log: slog.New(slog.NewTextHandler(&logged, nil))}
	s.stats = func() stats {
		return stats{Loads: 7, Renames: 3, Replicas: []replicaStats{t.stats("http://shop.test")}}
	}
	h := newHandler([]string{"example.com"}, labPage, s.routes)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w, logged.String()
}

func TestCatalogPage(t *testing.T) {
	get := func(context.Context) (tree, error) {
		return tree{
			{
				ID: 1, Name: "Electronics",
				Children: []category{{ID: 21, ParentID: 1, Name: "Audio"}},
			},
		}, nil
	}
	counts := &tally{}
	w, _ := ask(t.Context(), "/catalog.json", get, counts)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, type %q", w.Code, w.Header().Get("Content-Type"))
	}
	if got, want := strings.TrimSpace(w.Body.String()),
		`{"1":[{"id":21,"parentId":1,"name":"Audio"}]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := counts.requests.Load(); got != 1 {
		t.Errorf("%d requests counted, want 1", got)
	}
}

func TestErrorsBecomeStatuses(t *testing.T) {
	secret := errors.New("no such table: category")
	for _, c := range []struct {
		err  error
		want int
	}{
		{cacheguard.ErrNotFound, http.StatusNotFound},
		{cacheguard.ErrOverloaded, http.StatusServiceUnavailable},
		{cacheguard.ErrUnavailable, http.StatusServiceUnavailable},
		{cacheguard.ErrClosed, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{context.Canceled, http.StatusBadGateway},
		{secret, http.StatusBadGateway},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			get := func(context.Context) (tree, error) { return nil, fmt.Errorf("load: %w", c.err) }
			w, logged := ask(t.Context(), "/catalog.json", get, &tally{})
			var body failure
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatalf("%v in %q", err, w.Body)
			}
			if w.Code != c.want || body.Status != c.want ||
				w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("status %d, body %+v, type %q; want %d", w.Code, body,
					w.Header().Get("Content-Type"), c.want)
			}
			if found := c.want != http.StatusNotFound; strings.Contains(body.Error,
				c.err.Error()) || strings.Contains(logged, c.err.Error()) != found {
				t.Errorf("the cause belongs into the log only; body %q, log %q", body.Error, logged)
			}
		})
	}
}

func TestAClientThatLeftIsNoFailure(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	get := func(ctx context.Context) (tree, error) {
		leave()
		return nil, ctx.Err()
	}
	w, logged := ask(ctx, "/catalog.json", get, &tally{})
	if w.Body.Len() > 0 || logged != "" {
		t.Errorf("body %q, log %q, want neither", w.Body, logged)
	}
}

// curl -I and monitoring tools use HEAD.
func TestHead(t *testing.T) {
	c := start(t, 1, "-origin-delay", "0s")
	client := newClient(t)
	for _, path := range []string{
		"/", "/catalog", "/catalog.json", "/categories/21", "/stats.json", "/healthz", "/metrics",
	} {
		resp, err := client.Head(c.urls[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: status %d, type %q", path, resp.StatusCode,
				resp.Header.Get("Content-Type"))
		}
	}
}

func TestStatsPage(t *testing.T) {
	counts := &tally{}
	for _, kind := range []cacheguard.EventKind{
		cacheguard.EventMiss, cacheguard.EventLeaseAsked, cacheguard.EventLeaseGranted,
		cacheguard.EventLoad,
		cacheguard.EventHit, cacheguard.EventHit, cacheguard.EventLeaseAsked,
		cacheguard.EventCoalesced, 255,
	} {
		counts.Observe(t.Context(), cacheguard.Event{Kind: kind})
	}
	w, _ := ask(t.Context(), "/stats.json", nil, counts)
	want := `{"loads":7,"categoryLoads":0,"pageRuns":0,"renames":3,"replicas":[{"address":"http://shop.test","requests":0,` +
		`"results":{"hit":2,"coalesced":1,"loaded":1},"leaseRequests":2,"leasesGranted":1}]}`
	if got := strings.TrimSpace(w.Body.String()); got != want ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPage(t *testing.T) {
	for path, kind := range map[string]string{
		"/": "text/html", "/page/style.css": "text/css", "/page/lab.js": "text/javascript",
		"/page/draw.js": "text/javascript", "/simulator": "text/html",
		"/page/simulator.js": "text/javascript",
	} {
		w, _ := ask(t.Context(), path, nil, &tally{})
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) ||
			!strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'self'") ||
			w.Body.Len() == 0 {
			t.Errorf("%s: status %d, %v, %d bytes", path, w.Code, w.Header(), w.Body.Len())
		}
	}
	for _, path := range []string{"/nothing", "/page/", "/page/index.go", "/page/../main.go"} {
		if w, _ := ask(t.Context(), path, nil, &tally{}); w.Code != http.StatusNotFound {
			t.Errorf("status of %s is %d, want 404", path, w.Code)
		}
	}
	w, _ := ask(t.Context(), "/", nil, &tally{})
	if body := w.Body.String(); !strings.Contains(body, "/catalog.json") ||
		!strings.Contains(body, "/stats.json") {
		t.Errorf("the page: %s", body)
	}
}
