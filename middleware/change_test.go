package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// tagCounter is a store that counts the tags that were ever invalidated.
type tagCounter struct {
	cacheguard.Store
	tags map[string]bool
}

func (s *tagCounter) InvalidateTags(
	ctx context.Context, cache string, tags []string,
) (int64, error) {
	for _, tag := range tags {
		s.tags[tag] = true
	}
	return s.Store.InvalidateTags(ctx, cache, tags)
}

// strangersAnswer answers requests that anybody may send: for a page, for a search by POST, and for
// a redirect to a place that the client names.
func strangersAnswer(w http.ResponseWriter, r *http.Request) {
	switch to := r.URL.Query().Get("next"); {
	case r.Method == "GET":
		w.Header().Set("Cache-Control", "public, max-age=600")
		w.Header().Set("Vary", "X-Plan")
		fmt.Fprint(w, "the page")
	case to != "":
		w.Header().Set("Location", to)
		w.Header().Set("Content-Location", to)
		w.WriteHeader(http.StatusSeeOther)
	}
}

// hits reports whether a GET is answered from the cache.
func hits(h http.Handler, path string, fields ...string) bool {
	return asks(h, "GET", path, fields...).Header().Get("Age") != ""
}

// POSTs by anonymous clients take a bounded part of the memory of tags, so that no other tag is
// forgotten. Each POST still removes the resource to which it was sent.
func TestStrangersPurgeNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tagCounter{Store: memstore.New(memstore.Options{}), tags: map[string]bool{}}
		cache, err := middleware.New(store,
			middleware.Options{VaryBy: func(r *http.Request) string { return r.Method }})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		h := cache.Handler(http.HandlerFunc(strangersAnswer))
		asks(h, "GET", "/products")
		if err := cache.Purge(t.Context(), "/elsewhere"); err != nil {
			t.Fatal(err)
		}
		for i := range 30_000 {
			asks(h, "POST", fmt.Sprint("/search?q=", i))
		}
		if !hits(h, "/products") {
			t.Error("30,000 searches have purged /products")
		}
		if n := len(store.tags); n > 2000 {
			t.Errorf("strangers had %d tags invalidated", n)
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "BREW"} {
			for _, fields := range [][]string{nil, {"X-Plan", "a"}, {"Authorization", "x"}} {
				asks(h, "GET", "/products", fields...)
				asks(h, "GET", "/products", fields...)
				if !hits(h, "/products", fields...) {
					t.Errorf("%v: not stored", fields)
				}
				asks(h, method, "/products", fields...)
				if hits(h, "/products", fields...) {
					t.Errorf("%s with %v has removed nothing", method, fields)
				}
			}
		}
	})
}

// If a response was being made when a POST came, it is not stored after the POST. This holds also
// when the budget is used up.
func TestStrangersOwnChangeBeatsALateFill(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var slow atomic.Bool
	_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && slow.CompareAndSwap(true, false) {
			close(begun)
			<-goOn
		}
		strangersAnswer(w, r)
	})
	for i := range 1500 {
		asks(h, "POST", fmt.Sprint("/search?q=", i))
	}
	slow.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		asks(h, "GET", "/products")
	}()
	<-begun
	asks(h, "POST", "/products")
	close(goOn)
	<-done
	if hits(h, "/products") {
		t.Error("what was begun before the POST is stored after it")
	}
}

// ordered records the keys of each invalidation.
type ordered struct {
	cacheguard.Store
	calls [][]string
}

func (s *ordered) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	var names []string
	for _, k := range keys {
		names = append(names, k.Key)
	}
	s.calls = append(s.calls, names)
	return s.Store.Invalidate(ctx, keys)
}

// When the budget is used up, a POST removes the responses from which copies are made before the
// copies, and has removed them when it begins with the copies. Otherwise a copy could be made after
// the copies were removed.
func TestSourcesAreRemovedBeforeCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &ordered{Store: memstore.New(memstore.Options{})}
		c, err := middleware.New(s, middleware.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		h := c.Handler(http.HandlerFunc(strangersAnswer))
		for i := range 1500 {
			asks(h, "POST", fmt.Sprint("/search?q=", i))
		}
		s.calls = nil
		asks(h, "POST", "/products")
		if len(s.calls) != 2 || len(s.calls[0]) != 2 || len(s.calls[1]) != 1 {
			t.Fatalf("removed: %q", s.calls)
		}
		for _, source := range s.calls[0] {
			if own := s.calls[1][0]; !strings.HasSuffix(source, own) || source == own {
				t.Errorf("removed: %q; want the resource's own key last", s.calls)
			}
		}
	})
}

// A client that can choose the target of a form's redirect can't purge the target.
func TestStrangersRedirectPurgesNothing(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		for _, next := range []string{
			"/products", "//example.com/products", "http://example.com/products",
			"http://EXAMPLE.com:80/products",
		} {
			_, h := front(t, middleware.Options{}, strangersAnswer)
			asks(h, "GET", "/products")
			asks(h, method, "/login?next="+next)
			if !hits(h, "/products") {
				t.Errorf("%s /login?next=%s has purged /products", method, next)
			}
			_, h = front(t, middleware.Options{InvalidateLocations: true}, strangersAnswer)
			asks(h, "GET", "/products")
			asks(h, method, "/login?next="+next)
			if hits(h, "/products") {
				t.Errorf("%s /login?next=%s with the option has purged nothing", method, next)
			}
		}
	}
}

// A route that the cache doesn't answer can declare that its resource has changed.
func TestInvalidatesAlone(t *testing.T) {
	cache, h := front(t, middleware.Options{}, strangersAnswer)
	answers := 0
	save := cache.Invalidates(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers++
		if r.Header.Get("X-Fail") != "" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	for i, c := range []struct {
		method string
		fields []string
		gone   bool
	}{
		{"GET", nil, false}, {"HEAD", nil, false}, {"OPTIONS", nil, false}, {"CONNECT", nil, false},
		{"POST", []string{"X-Fail", "yes"}, false}, {"POST", nil, true}, {"PUT", nil, true},
		{"PATCH", nil, true},
		{"DELETE", nil, true}, {"BREW", nil, true},
	} {
		asks(h, "GET", "/products")
		asks(save, c.method, "/products", c.fields...)
		if hits(h, "/products") == c.gone {
			t.Errorf("after %s %v: gone %v; want %v", c.method, c.fields, !c.gone, c.gone)
		}
		if answers != i+1 {
			t.Errorf("%s: the handler behind has run %d times", c.method, answers)
		}
	}
}

// askedStore is a store that counts look-ups and removals, and can let a look-up fail.
type askedStore struct {
	cacheguard.Store
	fails func(key string) bool // nil: none
	asked int
}

func (s *askedStore) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) ([]byte, cacheguard.Generations, error) {
	if s.asked++; s.fails != nil && s.fails(k.Key) {
		return nil, nil, errors.New("the store is busy")
	}
	return s.Store.Get(ctx, k, tags)
}

func (s *askedStore) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	s.asked++
	return s.Store.Invalidate(ctx, keys)
}

func newAskedStore(t *testing.T, opts middleware.Options) (*askedStore, *middleware.Cache) {
	t.Helper()
	memory := memstore.New(memstore.Options{})
	store := &askedStore{Store: memory}
	opts.Logger = slog.New(slog.DiscardHandler)
	cache, err := middleware.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cache.Close()
		_ = memory.Close()
	})
	return store, cache
}

// A POST beyond the budget asks the store once, also if its client has a part of the response
// before the handler returns.
func TestChangeBeyondTheBudgetAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cache := newAskedStore(t, middleware.Options{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				fmt.Fprint(w, strings.Repeat("x", 10_000))
			}
		}))
		for i := range 1500 {
			asks(h, "POST", fmt.Sprint("/search?q=", i))
		}
		cost := func(path string) int {
			before := store.asked
			asks(h, "POST", path)
			return store.asked - before
		}
		if short, long := cost("/short"), cost("/long"); short == 0 || long != short {
			t.Errorf("%d questions for a short response, %d for a long one", short, long)
		}
	})
}

// A POST beyond the budget removes the response that a GET with its fields would get. This holds
// also if Shape puts values that chi has read into the key, while chi goes on reading.
func TestChangeBeyondTheBudgetOfAShapedPage(t *testing.T) {
	cache := newCache(t, middleware.Options{Shape: func(r *http.Request) { r.URL.RawQuery = "" }})
	routes := chi.NewRouter()
	routes.Route("/products", func(r chi.Router) {
		r.Use(cache.Handler)
		r.Handle("/{id}", http.HandlerFunc(strangersAnswer))
	})
	for i := range 1500 {
		asks(routes, "POST", fmt.Sprint("/products/", i))
	}
	asks(routes, "GET", "/products/1400?x")
	if !hits(routes, "/products/1400?y") {
		t.Fatal("not stored")
	}
	asks(routes, "POST", "/products/1400")
	if hits(routes, "/products/1400") {
		t.Error("what was changed is still served")
	}
}

// A change invalidates the resource that its request named as it came, whatever the handler does to
// the request.
func TestHandlerChangesTheRequestOfAChange(t *testing.T) {
	for name, edit := range map[string]func(r *http.Request){
		"host":   func(r *http.Request) { r.Header.Set("X-Forwarded-Host", r.Header.Get("Host")) },
		"scheme": func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "") },
		"path":   func(r *http.Request) { r.URL.Path, r.RequestURI = "/inner", "/inner" },
		"method": func(r *http.Request) { r.Method = http.MethodGet },
	} {
		reads := 0
		h := newCache(t, middleware.Options{
			DefaultTTL:     time.Minute,
			TrustForwarded: []string{"X-Forwarded-Host", "X-Forwarded-Proto"},
		}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				reads++
				w.Header().Set("Cache-Control", "max-age=60")
				return
			}
			edit(r)
		}))
		h = func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("X-Forwarded-Host", "shop")
				r.Header.Set("X-Forwarded-Proto", "https")
				h.ServeHTTP(w, r)
			})
		}(h)
		asks(h, "GET", "/p")
		asks(h, "GET", "/p")
		if reads != 1 {
			t.Fatalf("%s: two GETs ran the handler %d times", name, reads)
		}
		asks(h, "POST", "/p")
		asks(h, "GET", "/p")
		if reads != 2 {
			t.Errorf("%s: a GET after the change got the old response", name)
		}
	}
}
