package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

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
