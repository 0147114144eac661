package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A request for a range doesn't wait for any other request.
func TestRangesWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		var runs atomic.Int32
		pieces, gate := inPieces(&runs, strong), make(chan struct{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "bytes=0-4" {
				<-gate
			}
			pieces(w, r)
		}))
		first := make(chan string)
		go func() { first <- ranged(h, "0-4") }()
		synctest.Wait()
		for range 2 {
			if got := ranged(h, "5-9"); got != "56789" {
				t.Errorf("got %q", got)
			}
		}
		if got := asks(h, "GET", "/").Body.String(); got != digits {
			t.Errorf("the whole is %q", got)
		}
		close(gate)
		if got := <-first; got != "01234" {
			t.Errorf("got %q", got)
		}
	})
}

// Requests for ranges are bounded, also if their parts are stored. With eight loads, two of these
// requests run at a time. All requests are answered, and meanwhile a page of another URL is made.
func TestManyRangesAtOnce(t *testing.T) {
	for name, path := range map[string]string{"one page": "/", "many pages": "/%d"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs working
				hold := make(chan struct{})
				h := newCache(t,
					middleware.Options{
						MaxLoads: 8,
					}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header()["Cache-Control"], w.Header()["Etag"] = []string{"max-age=60"},
						[]string{`"1"`}
					if r.Header["Range"] != nil {
						runs.begins()
						defer runs.ends()
						<-hold
					}
					http.ServeContent(w, r, "a.txt", time.Time{}, bytes.NewReader([]byte(digits)))
				}))
				var all sync.WaitGroup
				for i := range 100 {
					all.Go(func() {
						r := httptest.NewRequest("GET", "/", nil)
						if path != "/" {
							r = httptest.NewRequest("GET", fmt.Sprintf(path, i), nil)
						}
						r.Header.Set("Range", fmt.Sprintf("bytes=%d-9", i%10))
						w := httptest.NewRecorder()
						if h.ServeHTTP(w, r); w.Code != http.StatusPartialContent ||
							w.Body.String() != digits[i%10:] {
							t.Errorf("bytes %d-9: %d %q", i%10, w.Code, w.Body)
						}
					})
				}
				synctest.Wait()
				if got := asks(h, "GET", "/page").Body.String(); got != digits {
					t.Errorf("a page is %q", got)
				}
				close(hold)
				all.Wait()
				if n := runs.peak.Load(); n < 1 || n > 2 {
					t.Errorf("%d handlers at a time", n)
				}
			})
		})
	}
}

// A request for a range doesn't wait for another process that stores a part of the same resource.
func TestRangesWaitForNoOtherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer func() { _ = store.Close() }()
		gate, runs := make(chan struct{}), &atomic.Int32{}
		pieces := inPieces(runs, strong)
		var handlers []http.Handler
		for range 2 {
			cache, err := middleware.New(store,
				middleware.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cache.Close() }()
			handlers = append(handlers,
				cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Range") == "bytes=0-4" {
						<-gate
					}
					pieces(w, r)
				})))
		}
		first := make(chan string)
		go func() { first <- ranged(handlers[0], "0-4") }()
		synctest.Wait()
		began := time.Now()
		if got := ranged(handlers[1], "5-9"); got != "56789" ||
			time.Since(began) > 100*time.Millisecond {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
		close(gate)
		if got := <-first; got != "01234" {
			t.Errorf("got %q", got)
		}
	})
}

// A response to a range request that is no part gives the lease back, so that the next part can be
// stored.
func TestLeaseOfARangeIsGivenBack(t *testing.T) {
	for name, first := range map[string]func(w http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {}, "not found": func(w http.ResponseWriter) {
			w.WriteHeader(404)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				pieces := inPieces(&runs, strong)
				h := newCache(t,
					middleware.Options{}).
					Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if then := first; then != nil {
							first = nil
							then(w)
							return
						}
						pieces(w, r)
					}))
				for range 3 {
					ranged(h, "0-4")
					// The test waits until the lease has been given back. No request waits for
					// this.
					synctest.Wait()
				}
				if runs.Load() != 1 {
					t.Errorf("%d runs", runs.Load())
				}
			})
		})
	}
}

// By HTTP/2 a request for a range can leave its empty body open, too. A handler that reads bodies
// must not wait for this client, because meanwhile the parts of other clients would not be stored.
func TestOpenBodyOfARange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
			w http.ResponseWriter, r *http.Request,
		) {
			_, _ = io.ReadAll(r.Body)
			w.Header().Set("Cache-Control", "max-age=60")
			http.ServeContent(w, r, "page.txt", time.Time{}, strings.NewReader(digits))
		}))
		body, client := io.Pipe() // as net/http gives it: open, of a length that is said to be 0
		r := httptest.NewRequest("GET", "/", nil)
		r.Body, r.ContentLength = body, 0
		r.Header.Set("Range", "bytes=0-4")
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("the handler waits for its client")
		}
		_ = client.Close()
		<-done
	})
}
