package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

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

// If a handler writes nothing, a layer in front may write the response, each time.
func TestHandlerWritesNothing(t *testing.T) {
	_, h := front(t, middleware.Options{DefaultTTL: time.Hour}, func(
		w http.ResponseWriter, r *http.Request,
	) {
		w.Header().Set("X-Inner", "yes")
	})
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, "no")
	})
	for i := range 3 {
		if w := fetch(outer, "/"); w.Code != 422 || w.Body.String() != "no" ||
			w.Header().Get("X-Inner") != "yes" {
			t.Errorf("request %d got %d %q %v", i, w.Code, w.Body, w.Header())
		}
	}
	runs := 0
	_, h = front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.Header().Set("Cache-Control", "max-age=60") // an empty page on purpose
	})
	if fetch(h, "/"); fetch(h, "/").Code != 200 || runs != 1 {
		t.Errorf("%d runs for an empty page with a freshness", runs)
	}
}

// A layer in front of the cache finds the pattern that a mux behind the cache has matched.
func TestPatternOfAMuxInside(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /products/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.PathValue("id"))
	})
	_, h := front(t, middleware.Options{DefaultTTL: time.Hour}, mux.ServeHTTP)
	r := httptest.NewRequest("GET", "/products/42", nil).WithContext(context.Background())
	if h.ServeHTTP(httptest.NewRecorder(), r); r.Pattern != "GET /products/{id}" {
		t.Errorf("the pattern is %q", r.Pattern)
	}
}

// Behind http.TimeoutHandler a request can be over while it still waits for its turn. Then its chi
// route context may belong to another request. A handler that runs for other clients in its place
// sees the parameters with which the request came.
func TestRouteOfARequestThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 1})
		first := make(chan struct{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				<-first
			}
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprintf(w, "product %s", chi.URLParam(r, "id"))
		}))
		serve := func(ctx context.Context, path string, route *chi.Context) chan string {
			body := make(chan string, 1)
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w,
					httptest.NewRequest("GET", path,
						nil).WithContext(context.WithValue(ctx, chi.RouteCtxKey, route)))
				body <- w.Body.String()
			}()
			synctest.Wait()
			return body
		}
		route := func(id string) *chi.Context {
			r := chi.NewRouteContext()
			r.URLParams.Add("id", id)
			return r
		}
		serve(t.Context(), "/first", route("0"))
		ctx, leave := context.WithCancel(t.Context())
		recycled := route("1")
		serve(ctx, "/products/1", recycled)
		waits := serve(t.Context(), "/products/1", route("1"))
		recycled.Reset()
		recycled.URLParams.Add("id", "2")
		leave()
		synctest.Wait()
		close(first)
		for _, body := range []chan string{waits, serve(t.Context(), "/products/1", route("1"))} {
			select {
			case got := <-body:
				if got != "product 1" {
					t.Errorf("got %q for product 1", got)
				}
			case <-time.After(time.Minute):
				t.Error("no response")
			}
		}
	})
}

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
