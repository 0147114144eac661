package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// A handler, or a layer between the cache and the handler, may remove fields from its request after
// it has read them. The cache uses the request as it came to find out who asked and which fields
// selected the response.
func TestHandlerChangesItsRequest(t *testing.T) {
	for _, cc := range []string{"", "max-age=60"} {
		for _, field := range []string{"Authorization", "Cookie"} {
			if field == "Cookie" && cc != "" {
				continue // that response is for all
			}
			cache := newCache(t, middleware.Options{DefaultTTL: time.Minute})
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				user := r.Header.Get(field)
				r.Header.Del(field)
				if cc != "" {
					w.Header().Set("Cache-Control", cc)
				}
				fmt.Fprintf(w, "page of %q", user)
			}))
			asks(h, "GET", "/", field, "alice")
			if got := asks(h, "GET", "/").Body.String(); got != `page of ""` {
				t.Errorf("%s, %q: nobody in particular gets the %s", field, cc, got)
			}
			if got := asks(h, "GET", "/", field, "bob").Body.String(); strings.Contains(got,
				"alice") {
				t.Errorf("%s, %q: bob gets the %s", field, cc, got)
			}
		}
	}
	cache := newCache(t, middleware.Options{})
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept-Encoding")
		w.Header().Set("Cache-Control", "max-age=60")
		if e := r.Header.Get("Accept-Encoding"); e != "" {
			r.Header.Del("Accept-Encoding")
			w.Header().Set("Content-Encoding", e)
		}
		fmt.Fprint(w, "x")
	}))
	asks(h, "GET", "/", "Accept-Encoding", "gzip")
	if got := asks(h, "GET", "/").Header().Get("Content-Encoding"); got != "" {
		t.Errorf("without Accept-Encoding: it is encoded by %s", got)
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

// A client may ask for a newer response and get one that can't be shared. The fresh page stays, and
// requests for it are still coalesced. This also holds for a 304 and for a HEAD.
func TestAnswersThatCantBeSharedTurnNothingOff(t *testing.T) {
	says := func(status int, fields ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(fields); i += 2 {
				w.Header().Set(fields[i], fields[i+1])
			}
			w.WriteHeader(status)
		}
	}
	for name, attack := range map[string]http.HandlerFunc{
		"304 private":    says(304, "Cache-Control", "private", "Etag", `"1"`),
		"304 Set-Cookie": says(304, "Set-Cookie", "a=b"),
		"304 Vary":       says(304, "Vary", "*"),
		"304 no-store":   says(304, "Cache-Control", "no-store"),
		"200 private":    says(200, "Cache-Control", "private"),
		"200 other":      says(200, "Cache-Control", "private", "Etag", `"2"`),
	} {
		for _, method := range []string{"GET", "HEAD"} {
			cache := newCache(t, middleware.Options{})
			var runs atomic.Int32
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				if r.Header.Get("X-Attack") != "" {
					attack(w, r)
					return
				}
				w.Header().Set("Etag", `"1"`)
				page(w, "for all")
			}))
			asks(h, "GET", "/")
			asks(h, method, "/", "X-Attack", "1", "Cache-Control", "no-cache")
			runs.Store(0)
			for range 3 {
				asks(h, "GET", "/")
			}
			if n := runs.Load(); n > 0 {
				t.Errorf("after %s %s: %d runs for a fresh page", method, name, n)
			}
		}
	}
}

// A handler that ignores its context keeps its slot until it returns, also if its client has left.
func TestClientsThatLeaveFreeNoSlots(t *testing.T) {
	const most = 2
	cache := newCache(t, middleware.Options{MaxLoads: most})
	gate := make(chan struct{})
	var running atomic.Int32
	began := make(chan struct{}, 100)
	s := httptest.NewServer(
		cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if running.Add(1) > most {
				t.Errorf("more than %d run at a time", most)
			}
			defer running.Add(-1)
			began <- struct{}{}
			<-r.Context().Done() // the handler learns of it and goes on
			<-gate
			page(w, "x")
		})))
	defer s.Close()
	defer close(gate)
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprint(s.URL, "/", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := http.DefaultClient.Do(r); err == nil {
				res.Body.Close()
			}
		}()
		if i < most {
			<-began
		}
		cancel()
		<-done
	}
}

// If the options remove fields from the query, the handler finds them nowhere. This holds also if a
// layer in front has parsed the form.
func TestParsedFormHasNoFieldsThatAreTakenOut(t *testing.T) {
	cache := newCache(t, middleware.Options{KeepQuery: []string{}, DefaultTTL: time.Minute})
	inner := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.FormValue("q"))
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.FormValue("lang")
		inner.ServeHTTP(w, r)
	})
	asks(h, "GET", "/?q=evil")
	if got := asks(h, "GET", "/").Body.String(); got != "" {
		t.Errorf("a field that was taken out reads %q", got)
	}
}
