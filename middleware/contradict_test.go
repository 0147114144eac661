package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// failures are ways in which a handler reports that it has failed when half of its page is written.
var failures = map[string]func(w http.ResponseWriter, r *http.Request){
	"http.Error": func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "database is away", 500)
	},
	"a bare head": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) },
	"not found":   func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
	"a panic that somebody behind the cache recovers": func(
		w http.ResponseWriter, r *http.Request,
	) {
		defer func() { // as chi's Recoverer does
			_ = recover()
			w.WriteHeader(http.StatusInternalServerError)
		}()
		panic("database is away")
	},
}

// failsInTheMiddle returns a handler that fails in the middle of the first page that it makes. It
// counts its runs.
func failsInTheMiddle(
	runs *atomic.Int32, hold <-chan struct{}, begin func(w http.ResponseWriter),
	fail func(http.ResponseWriter, *http.Request),
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := runs.Add(1) == 1
		w.Header().Set("Cache-Control", "max-age=60")
		if !first {
			_, _ = w.Write([]byte("the whole page"))
			return
		}
		begin(w)
		if <-hold; first {
			fail(w, r)
		}
	})
}

// A handler that writes an error after it has begun to answer has failed. Its half page is given to
// no other client. The next requests get a page of their own, from one run for all of them.
func TestErrorAfterABodyHasBegun(t *testing.T) {
	begins := map[string]func(w http.ResponseWriter){
		"a little": func(w http.ResponseWriter) { _, _ = w.Write([]byte("half a page ")) },
		"a lot": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte(strings.Repeat("half a page ", 10<<10)))
		},
		"flushed": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte("half a page "))
			_ = http.NewResponseController(w).Flush()
		},
		"all that was promised": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", strconv.Itoa(len("half a page ")))
			_, _ = w.Write([]byte("half a page "))
		},
		"its head": func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
	}
	for name, fail := range failures {
		for how, begin := range begins {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cache := newCache(t, middleware.Options{})
					var runs atomic.Int32
					hold := make(chan struct{})
					h := cache.Handler(failsInTheMiddle(&runs, hold, begin, fail))
					first := httptest.NewRecorder()
					var all sync.WaitGroup
					all.Go(func() { h.ServeHTTP(first, httptest.NewRequest("GET", "/", nil)) })
					synctest.Wait()
					for range 10 {
						all.Go(func() {
							// The connection of a client that has read the beginning is aborted.
							defer func() {
								if v := recover(); v != nil && v != http.ErrAbortHandler {
									t.Errorf("panic %v", v)
								}
							}()
							if w := asks(h, "GET", "/"); w.Body.String() != "the whole page" &&
								w.Code != http.StatusBadGateway {
								t.Errorf("who waited has %d %.40q", w.Code, w.Body)
							}
						})
					}
					synctest.Wait()
					close(hold)
					all.Wait()
					if how == "a little" &&
						first.Header().
							Get("Cache-Status") != "cacheguard; fwd=uri-miss; detail=incomplete" {
						t.Errorf("Cache-Status: %s", first.Header().Get("Cache-Status"))
					}
					if got := asks(h, "GET", "/").Body.String(); got != "the whole page" {
						t.Errorf("who comes later has %.40q", got)
					}
					if n := runs.Load(); n != 2 {
						t.Errorf("%d runs; want the one that failed and one for all others", n)
					}
				})
			})
		}
	}
}

// If a refresh fails in the middle, the stale response stays, and other clients get it.
func TestErrorInTheMiddleOfARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		var runs atomic.Int32
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
			_, _ = w.Write([]byte("page"))
			if runs.Add(1) > 1 {
				http.Error(w, "database is away", 500)
			}
		}))
		asks(h, "GET", "/")
		<-time.After(15 * time.Second)
		for range 3 {
			if got := asks(h, "GET", "/").Body.String(); got != "page" {
				t.Errorf("%q", got)
			}
			synctest.Wait()
			<-time.After(5 * time.Second)
		}
		if n := runs.Load(); n < 3 {
			t.Errorf("%d runs", n)
		}
	})
}

// If a part, the response to a HEAD or the response to a POST ends in an error, it is not stored
// either. A second status that is the same, or no error, changes nothing.
func TestErrorAfterWhatElseHasBegun(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		header []string
		status int
		stored bool
	}{
		"GET":           {"GET", nil, 500, false},
		"GET, good":     {"GET", nil, 200, true},
		"GET, once 206": {"GET", nil, 206, true},
		"Range":         {"GET", []string{"Range", "bytes=0-3"}, 500, false},
		"Range, good":   {"GET", []string{"Range", "bytes=0-3"}, 206, true},
		"POST":          {"POST", nil, 404, false},
		"POST, good":    {"POST", nil, 201, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{StorePosts: true, MaxLoads: 16})
				runs := 0
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("Etag", `"1"`)
					w.Header().Set("Content-Location", "/")
					if r.Header.Get("Range") != "" {
						w.Header().Set("Content-Range", "bytes 0-3/10")
						w.WriteHeader(http.StatusPartialContent)
					}
					fmt.Fprint(w, "page")
					w.WriteHeader(c.status)
				}))
				asks(h, c.method, "/", c.header...)
				asks(h, "GET", "/", c.header...)
				if stored := runs == 1; stored != c.stored {
					t.Errorf("%d runs; want it stored: %v", runs, c.stored)
				}
			})
		})
	}
}

// If the handler of a HEAD fails after it has begun, its header tells nothing about the page.
func TestErrorOfAHeadChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{Keep: time.Hour})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=10")
			w.Header().Set("Etag", `"1"`)
			fmt.Fprint(w, r.Method)
			if r.Method == "HEAD" {
				http.Error(w, "no", 500)
			}
		}))
		asks(h, "GET", "/")
		<-time.After(15 * time.Second)
		asks(h, "HEAD", "/")
		if got := asks(h, "GET", "/").Header().Get("Cache-Status"); strings.Contains(got, "hit") {
			t.Errorf("the stale page is fresh by a HEAD that has failed: %s", got)
		}
	})
}
