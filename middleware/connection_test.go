package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// transport is a backend without a connection.
type transport http.HandlerFunc

func (b transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	b(w, r)
	return w.Result(), nil
}

// A proxy behind the cache removes the fields that a client names in Connection. The backend's
// response to this request is given to no other client.
func TestConnectionChoosesNothingForOthers(t *testing.T) {
	backend := transport(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.Header().Set("Vary", "Accept-Language, Cookie, X-Tenant")
		w.Header().Set("Content-Location", "/")
		for _, name := range []string{"Accept-Language", "Cookie", "X-Tenant", "X-Forwarded-Host"} {
			fmt.Fprintf(w, "%s %q, ", name, r.Header[name])
		}
	})
	inside := &url.URL{Scheme: "http", Host: "inside"}
	newFront := func(t *testing.T) http.Handler {
		cache := newCache(t,
			middleware.Options{TrustForwarded: []string{"X-Forwarded-Host"}, StorePosts: true})
		return cache.Handler(&httputil.ReverseProxy{Transport: backend, Rewrite: func(
			r *httputil.ProxyRequest,
		) {
			r.SetURL(inside)
			r.Out.Header["X-Forwarded-Host"] = r.In.Header["X-Forwarded-Host"]
			if strings.Contains(strings.Join(r.In.Header["Connection"], ","), "orwarded") {
				delete(r.Out.Header, "X-Forwarded-Host")
			}
		}})
	}
	plain := []string{
		"Host: shop", "Accept-Language: de", "Cookie: plan=pro", "X-Tenant: 7",
		"X-Forwarded-Host: www.shop",
	}
	for name, connection := range map[string][]string{
		"field":        {"Connection: Accept-Language"},
		"after close":  {"Connection: close, Accept-Language"},
		"second line":  {"Connection: keep-alive", "Connection: accept-language"},
		"spelling":     {"Connection: ,\tACCEPT-language ,"},
		"Cookie":       {"Connection: Cookie, close"},
		"any field":    {"Connection: X-Tenant"},
		"key":          {"Connection: X-Forwarded-Host"},
		"beside TE":    {"Connection: TE, X-Tenant", "TE: trailers"},
		"absent field": {"Connection: X-Other, Cookie"},
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				h, fields := newFront(t), plain
				if method == "POST" {
					fields = slices.DeleteFunc(slices.Clone(plain), func(line string) bool {
						return strings.HasPrefix(line, "Cookie")
					})
				}
				want := sent(t, newFront(t),
					append([]string{"GET / HTTP/1.1"}, fields...)...).Body.String()
				sent(t, h, slices.Concat([]string{method + " / HTTP/1.1"}, fields, connection)...)
				if got := sent(t, h,
					append([]string{"GET / HTTP/1.1"}, fields...)...).Body.String(); got != want {
					t.Errorf("%q had the next client get %s; want %s", connection, got, want)
				}
			})
		}
	}
}

// If Connection names a field that a layer in front has read, the cache still uses the field: a
// user's page stays that user's.
func TestConnectionHidesNobody(t *testing.T) {
	type user struct{}
	for _, field := range []string{"Cookie", "Authorization"} {
		cache := newCache(t, middleware.Options{DefaultTTL: 60e9})
		routes := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "the page of %v", r.Context().Value(user{}))
		}))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // a session middleware
			routes.ServeHTTP(w,
				r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get(field))))
		})
		if got := asks(h, "GET", "/", field, "alice", "Connection",
			field).Body.String(); got != "the page of alice" {
			t.Errorf("%s: alice got %q", field, got)
		}
		if got := asks(h, "GET", "/").Body.String(); got != "the page of " {
			t.Errorf("%s: nobody got %q", field, got)
		}
	}
}

// Options of the connection itself in Connection cost nobody a hit, and the handler gets the
// request as it came.
func TestConnectionOfItself(t *testing.T) {
	cache := newCache(t, middleware.Options{})
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, strings.Join(r.Header["Connection"], "|"))
	}))
	asks(h, "GET", "/")
	for _, line := range []string{
		"close", "Keep-Alive", "TE, close", "", "Upgrade", "Proxy-Connection",
		"trailer,transfer-encoding",
	} {
		if got := asks(h, "GET", "/", "Connection",
			line).Header().Get("Cache-Status"); !strings.Contains(got, "hit") {
			t.Errorf("Connection: %s: %s", line, got)
		}
	}
	const named = "close, X-Plan"
	got := asks(h, "GET", "/", "Connection", named, "X-Plan", "a")
	if got.Body.String() != named ||
		!strings.Contains(got.Header().Get("Cache-Status"), "fwd=bypass") {
		t.Errorf("Connection: %s: %v %q", named, got.Header(), got.Body)
	}
}
