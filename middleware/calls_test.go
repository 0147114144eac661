package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// front returns a handler behind a cache of its own, in memory.
func front(
	t *testing.T, opts middleware.Options, h http.HandlerFunc,
) (*middleware.Cache, http.Handler) {
	t.Helper()
	cache, err := middleware.New(memstore.New(memstore.Options{}), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	return cache, cache.Handler(h)
}

func fetch(h http.Handler, url string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", url, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// newCache makes a cache on a store of its own that is closed at the end of the test.
func newCache(t testing.TB, opts middleware.Options) *middleware.Cache {
	t.Helper()
	store := memstore.New(memstore.Options{})
	cache, err := middleware.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cache.Close()
		_ = store.Close()
	})
	return cache
}

// asks sends one request through a handler and returns the response. The header is given in pairs.
func asks(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
