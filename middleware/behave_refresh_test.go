package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

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

// A layer in front of the cache may have found out which user a request is from. A refresh that one
// user's request begins never makes a response that another user gets.
func TestRefreshForOneUserIsNotAnothersResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		type user struct{}
		routes := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
			w.Header().Set("Vary", "Cookie")
			fmt.Fprintf(w, "the orders of %v", r.Context().Value(user{}))
		}))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // a session middleware
			routes.ServeHTTP(w,
				r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("Cookie"))))
		})
		get := func(cookie string) {
			t.Helper()
			if got, want := asks(h, "GET", "/orders", "Cookie", cookie).Body.String(),
				"the orders of "+cookie; got != want {
				t.Errorf("%s got %q", cookie, got)
			}
		}
		get("alice")
		get("bob")
		for range 3 {
			<-time.After(15 * time.Second)
			get("bob")
			synctest.Wait()
			get("alice")
			synctest.Wait()
			get("alice")
			get("bob")
		}
	})
}
