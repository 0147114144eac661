package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	guard "github.com/cacheguard/cacheguard/middleware"
)

// Clients write the same request in many ways. These options give all of them one key, so that the
// handler runs once for all.
func ExampleOptions_sameRequest() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := guard.New(store, guard.Options{
		DefaultTTL:              time.Minute,
		KeepQuery:               []string{"page"},
		Normalize:               []string{"Accept-Language"},
		IgnoreVary:              []string{"Origin"},
		IgnoreRequestDirectives: true, // reloads don't run the handler
		Shape:                   func(r *http.Request) { r.Header.Del("Accept-Encoding") },
	})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	page := pages.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept-Language")
		fmt.Fprint(w, r.URL.Path, "?", r.URL.RawQuery)
	}))

	see(page, "/lamps?page=2", "Accept-Language", "en, de")
	see(page, "/lamps?page=2&from=mail",
		"Accept-Language", "de,en", "Cache-Control", "no-cache")
	// Output:
	// /lamps?page=2 | cacheguard; fwd=uri-miss; stored
	// /lamps?page=2 | cacheguard; hit
}

// A client that has made a change sends a token with its next requests, in a cookie in this
// example.
func ExampleOptions_token() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := guard.New(store, guard.Options{DefaultTTL: time.Minute, TokenCookie: "after"})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	name := "lamp"
	page := pages.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, name)
	}))
	see(page, "/products/42")

	name = "desk lamp" // committed
	token, err := cacheguard.Committed(context.Background(), store, "http")
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/products/42", nil)
	r.AddCookie(&http.Cookie{Name: "after", Value: token.String()})
	page.ServeHTTP(w, r)
	fmt.Println(w.Body)
	// Output:
	// lamp | cacheguard; fwd=uri-miss; stored
	// desk lamp
}

// Other programs purge through an endpoint. This program itself purges by URL and by prefix, and
// stops when its requests have been answered.
func ExampleCache_PurgeHandler() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := guard.New(store, guard.Options{DefaultTTL: time.Hour})
	if err != nil {
		panic(err)
	}
	r := chi.NewRouter()
	r.With(pages.Handler).Get("/products/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "lamp")
	})
	r.With(pages.Invalidates).Post("/products/{id}", func(http.ResponseWriter, *http.Request) {})
	r.Handle("/purge", pages.PurgeHandler("secret"))
	see(r, "/products/42")

	form := url.Values{"url": {"/products/42"}}.Encode()
	purge := httptest.NewRequest("POST", "/purge", strings.NewReader(form))
	purge.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	purge.Header.Set("Authorization", "Bearer secret")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, purge)
	fmt.Println(w.Code)
	see(r, "/products/42")

	ctx := context.Background()
	fmt.Println(errors.Join(
		pages.Purge(ctx, "/products/42"),
		pages.PurgePrefix(ctx, "/products"),
		pages.MarkStale(ctx, "/"),
		pages.Shutdown(ctx),
	))
	// Output:
	// lamp | cacheguard; fwd=uri-miss; stored
	// 204
	// lamp | cacheguard; fwd=uri-miss; stored
	// <nil>
}

// A service with slow handlers bounds its memory and the waiting times of clients. It answers
// failures with a page of its own, and sets its name in Cache-Status.
func ExampleOptions_limits() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	reports, err := guard.New(store, guard.Options{
		Name:        "reports",
		CacheStatus: "reports",
		DefaultTTL:  time.Hour,
		NegativeTTL: 10 * time.Second, // a report that isn't ready is asked for again soon
		LoadTimeout: 2 * time.Minute,
		WaitTimeout: time.Minute,
		LeaseTTL:    5 * time.Second,
		MaxLoads:    8,
		MaxBody:     16 << 20,
		MaxBacklog:  1 << 30,
		LocalBytes:  64 << 20,
		LocalTTL:    10 * time.Second,
		MaxVariants: 10,
		OnStoreDown: cacheguard.FailClosed,
		Logger:      slog.Default().With("part", "reports"),
		Error: func(w http.ResponseWriter, _ *http.Request, status int, err error) {
			http.Error(w, "no report at present", status)
		},
	})
	if err != nil {
		panic(err)
	}
	defer reports.Close()
	report := reports.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "report")
	}))
	see(report, "/2026/11")
	see(report, "/2026/11")
	// Output:
	// report | reports; fwd=uri-miss; stored
	// report | reports; hit
}

// A site behind a proxy has two names and keeps pages whose handlers can answer 304. It shares its
// budget of loads with a loader, tells both to one observer, and can be switched off.
func ExampleOptions_site() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	var events guardtest.Recorder
	var caches cacheguard.Switch
	pages, err := guard.New(store, guard.Options{
		Heuristic:      0.1, // of the time since Last-Modified
		Keep:           24 * time.Hour,
		HitForMiss:     time.Minute,
		Hosts:          map[string]string{"www.example.com": "example.com"},
		TrustForwarded: []string{"X-Forwarded-Host", "X-Forwarded-Proto"},
		Limiter:        cacheguard.NewLimiter(32, 1000),
		Observer:       &events,
		Switch:         &caches,
		ShowKey:        true, // in Cache-Status, which HideStatus would leave out
	})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	changed := time.Now().Add(-time.Hour)
	page := pages.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", changed.UTC().Format(http.TimeFormat))
		fmt.Fprint(w, r.Host)
	}))
	for _, host := range []string{"www.example.com", "example.com"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-Host", host)
		r.Header.Set("X-Forwarded-Proto", "https")
		page.ServeHTTP(w, r)
		fmt.Println(w.Body,
			strings.Contains(w.Header().Get("Cache-Status"), `key="https://example.com/`))
	}
	fmt.Println(events.Count(cacheguard.EventLoad), "load,", events.Count(cacheguard.EventHit),
		"hit")
	// Output:
	// example.com true
	// example.com true
	// 1 load, 1 hit
}

// A form's POST shows the new page, which is stored for GET, and purges the list that its response
// names. A program that changes the data in a transaction purges with it: see package outbox.
func ExampleOptions_writes() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := guard.New(store, guard.Options{
		DefaultTTL:          time.Hour,
		StorePosts:          true,
		InvalidateLocations: true,
		StrongReads:         true,
		TokenField:          "Not-Older-Than",
		HideStatus:          true,
	})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	name := "lamp"
	r := chi.NewRouter()
	r.Use(pages.Handler)
	r.Get("/products/42", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name) })
	r.Post("/products/42", func(w http.ResponseWriter, r *http.Request) {
		name = "desk lamp"
		w.Header().Set("Content-Location", "/products/42")
		w.Header().Set("Cache-Control", "max-age=3600")
		fmt.Fprint(w, name)
	})
	ask := func(method string) {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(method, "/products/42", nil))
		fmt.Println(method, w.Body, w.Header()["Cache-Status"])
	}
	ask("GET")
	ask("POST")
	name = "not asked for"
	ask("GET")

	tags, err := pages.URLTags("/products/42")
	fmt.Println(len(tags) > 0, err)
	// Output:
	// GET lamp []
	// POST desk lamp []
	// GET desk lamp []
	// true <nil>
}
