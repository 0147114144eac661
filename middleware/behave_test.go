package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A client that sends Authorization can't make other clients run the handler themselves, neither
// waiting clients nor later ones. It can't remove a stale response either.
func TestAuthorizationDisarmsNothing(t *testing.T) {
	for name, stored := range map[string]bool{"stale": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				_, h := front(t, middleware.Options{
					DefaultTTL: time.Minute, StaleWhileRevalidate: time.Hour,
					StaleIfError: time.Hour,
				},
					func(w http.ResponseWriter, r *http.Request) {
						runs.Add(1)
						<-time.After(time.Second)
						fmt.Fprintf(w, "page of %q", r.Header.Get("Authorization"))
					})
				if stored {
					fetch(h, "/")
					<-time.After(2 * time.Minute)
				}
				runs.Store(0)
				answers := make(chan string, 16)
				for i := range 16 {
					go func() {
						if i == 0 {
							answers <- fetch(h, "/", "Authorization", "x").Body.String()
							return
						}
						<-time.After(time.Millisecond)
						answers <- fetch(h, "/").Body.String()
					}()
				}
				count := map[string]int{}
				for range 16 {
					count[<-answers]++
				}
				if count[`page of "x"`] != 1 || count[`page of ""`] != 15 {
					t.Errorf("answers: %v", count)
				}
				synctest.Wait()
				<-time.After(2 * time.Second)
				if n := runs.Load(); n != 2 {
					t.Errorf("%d runs; want one for the one with Authorization, one for all others",
						n)
				}
				fetch(h, "/")
				if n := runs.Load(); n != 2 {
					t.Errorf("a later request: %d runs", n)
				}
			})
		})
	}
}

// If a request with Authorization brings a response that is for all, it is stored for all, unless
// it was purged since.
func TestAuthorizationBringsWhatIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		cache, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "public, max-age=600")
			fmt.Fprint(w, runs)
		})
		for i, want := range []string{"1", "1", "1", "2", "2"} {
			if i == 3 {
				if err := cache.Purge(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
			}
			fields := []string{"Authorization", "x"}
			if i%2 == 1 {
				fields = nil
			}
			if got := fetch(h, "/", fields...).Body.String(); got != want {
				t.Errorf("request %d got %s; want %s", i, got, want)
			}
		}
	})
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

// RecordFlushed is for reverse proxies. An event stream is not recorded, because it doesn't end.
func TestRecordFlushed(t *testing.T) {
	for _, record := range []bool{true, false} {
		runs := 0
		_, h := front(t, middleware.Options{RecordFlushed: record, DefaultTTL: time.Hour}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			runs++
			if r.URL.Path == "/events" {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			for range 3 {
				_, _ = io.WriteString(w, "piece ")
				_ = http.NewResponseController(w).Flush()
			}
		})
		for range 2 {
			if got := fetch(h, "/").Body.String(); got != "piece piece piece " {
				t.Errorf("got %q", got)
			}
		}
		if (runs == 1) != record {
			t.Errorf("RecordFlushed %v: %d runs", record, runs)
		}
		runs = 0
		if fetch(h, "/events"); fetch(h, "/events").Code != 200 || runs != 2 {
			t.Errorf("events: %d runs", runs)
		}
	}
}

// If a response has more tags than can be kept, it could not be purged by each of them. It is not
// stored, and the log says so, once.
func TestTooManyTags(t *testing.T) {
	var log bytes.Buffer
	runs := 0
	_, h := front(t,
		middleware.Options{DefaultTTL: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(w http.ResponseWriter, r *http.Request) {
			runs++
			for i := range 60 {
				w.Header().Add("Cache-Tag", fmt.Sprint("product:", i))
			}
			fmt.Fprint(w, "list")
		})
	for range 3 {
		fetch(h, "/")
	}
	if runs != 3 || strings.Count(log.String(), "more tags") != 1 {
		t.Errorf("%d runs; the log says %s", runs, &log)
	}
}

// PurgeHandler executes all purges of a request or none.
func TestPurgeHandlerRefusesWhatItDoesntKnow(t *testing.T) {
	cache, _ := front(t, middleware.Options{}, func(http.ResponseWriter, *http.Request) {})
	h := cache.PurgeHandler("secret")
	for form, want := range map[string]int{
		"":                         400,
		"ulr=/a":                   400,
		"url=/a&tags=x":            400,
		"url=a":                    400,
		"tag=":                     400,
		"prefix=/a?b":              400,
		"url=/a&tag=x&prefix=/":    204,
		"stale=/a&stale=http://h/": 204,
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(url.PathEscape(form)))
		r.Body = io.NopCloser(strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "bearer secret")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d %s; want %d", form, w.Code, w.Body, want)
		}
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"url":"/a"}`))
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("JSON: %d %s", w.Code, w.Body)
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

// Cache-Status distinguishes a stale answer after a failure from a hit, and its size is bounded.
func TestCacheStatusOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		_, h := front(t, middleware.Options{ShowKey: true}, func(
			w http.ResponseWriter, r *http.Request,
		) {
			if down {
				w.WriteHeader(503)
				return
			}
			w.Header().Set("Cache-Control", "max-age=60, stale-if-error=600")
			fmt.Fprint(w, "page")
		})
		long := "/" + strings.Repeat("x", 5000)
		if got := fetch(h, long).Header().Get("Cache-Status"); len(got) > 2000 {
			t.Errorf("Cache-Status has %d bytes", len(got))
		}
		fetch(h, "/")
		<-time.After(2 * time.Minute)
		down = true
		w := fetch(h, "/")
		if got := w.Header().Get("Cache-Status"); w.Body.String() != "page" ||
			!strings.HasPrefix(got, "cacheguard; fwd=stale; fwd-status=503") {
			t.Errorf("%q: %s", w.Body, got)
		}
	})
}
