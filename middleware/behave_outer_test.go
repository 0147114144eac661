package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// inFront sets header fields before the handler runs, as layers in front of a cache do.
func inFront(h http.Handler, fields func(r *http.Request, h http.Header)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fields(r, w.Header())
		h.ServeHTTP(w, r)
	})
}

// Fields that are in the header before the handler is called are for one client. This holds for
// each way in which a header gets into the store: by a response, by a 304, by the response to a
// HEAD.
func TestFieldsFromTheFrontAreNotStored(t *testing.T) {
	for _, way := range []string{"GET", "304", "HEAD"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{})
				h := inFront(
					cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Cache-Control", "max-age=10")
						w.Header().Set("Etag", `"1"`)
						w.Header().Add("Server-Timing", "handler")
						if r.Header.Get("If-None-Match") == `"1"` {
							w.WriteHeader(http.StatusNotModified)
							return
						}
						_, _ = w.Write([]byte("all is well"))
					})), func(r *http.Request, h http.Header) {
						if user := r.Header.Get("X-User"); user != "" {
							h.Set("X-For", user)
							h["x-raw"] = []string{user}
							h.Add("Server-Timing", "session;desc="+user)
						}
					})
				asks(h, "GET", "/", "X-User", "alice")
				switch way {
				case "304":
					<-time.After(15 * time.Second)
					if w := asks(h, "GET", "/", "X-User", "alice"); w.Code != 200 ||
						w.Header().Get("X-For") != "alice" {
						t.Errorf("alice got %d %v", w.Code, w.Header())
					}
				case "HEAD":
					<-time.After(15 * time.Second)
					asks(h, "HEAD", "/", "X-User", "alice")
				}
				for _, user := range []string{"", "bob"} {
					w := asks(h, "GET", "/", "X-User", user)
					if w.Header().Get("Age") == "" || w.Body.String() != "all is well" {
						t.Errorf("%q got %d %v; want a stored response", user, w.Code, w.Header())
					}
					for name, values := range w.Header() {
						if text := fmt.Sprint(values); text == "[alice]" ||
							text == "[session;desc=alice handler]" {
							t.Errorf("%q got %s: %v", user, name, values)
						}
					}
				}
			})
		})
	}
}

// Fields of layers in front decide, together with the handler's fields, by which fields a response
// varies and how long it is fresh. A 304 or a HEAD doesn't change this.
func TestFieldsFromTheFrontDecide(t *testing.T) {
	for _, way := range []string{
		"GET", "304", "HEAD", "GET, own max-age", "304, own max-age", "HEAD, own max-age",
	} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				way, _, own := strings.Cut(way, ",")
				cache := newCache(t, middleware.Options{})
				runs := 0
				h := inFront(
					cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						runs++
						if own {
							w.Header().Set("Cache-Control", "max-age=10")
						}
						w.Header().Set("Etag", fmt.Sprintf("%q", r.Header.Get("X-Plan")))
						if r.Header.Get("If-None-Match") == w.Header().Get("Etag") {
							w.WriteHeader(http.StatusNotModified)
							return
						}
						fmt.Fprintf(w, "plan %s", r.Header.Get("X-Plan"))
					})), func(r *http.Request, h http.Header) {
						if !own {
							h.Set("Cache-Control", "max-age=10")
						}
						h.Set("Vary", "X-Plan")
					})
				asks(h, "GET", "/", "X-Plan", "gold")
				switch way {
				case "304":
					<-time.After(15 * time.Second)
					asks(h, "GET", "/", "X-Plan", "gold")
				case "HEAD":
					<-time.After(15 * time.Second)
					asks(h, "HEAD", "/", "X-Plan", "gold")
				}
				runs = 0
				for _, plan := range []string{"gold", "silver", "gold", "silver"} {
					if w := asks(h, "GET", "/", "X-Plan", plan); w.Body.String() != "plan "+plan {
						t.Errorf("%s got %q", plan, w.Body)
					}
				}
				if runs != 1 {
					t.Errorf("%d runs; want one, for silver", runs)
				}
			})
		})
	}
}
