package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/middleware"
)

// stuckWriter is a client that reads nothing until the test lets it read.
type stuckWriter struct {
	*httptest.ResponseRecorder
	gate <-chan struct{}
}

func (w stuckWriter) Write(p []byte) (int, error) {
	<-w.gate
	return w.ResponseRecorder.Write(p)
}

// pieceOf answers requests for any range with the second megabyte of two. It calls between when
// half of the part is written.
func pieceOf(runs *atomic.Int32, between func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", 1<<20, 2<<20-1, 2<<20))
		w.WriteHeader(http.StatusPartialContent)
		half := strings.Repeat(digits[:8], 1<<16)
		fmt.Fprint(w, half)
		w.Header().Set("X-Late", "1") // too late: the header has been written
		between()
		fmt.Fprint(w, half)
	}
}

// A client that doesn't read holds neither a lease nor a slot: its part is stored, other parts of
// the resource are stored, and other requests go on.
func TestSlowClientOfARange(t *testing.T) {
	const second = "bytes=1048576-"
	for name, c := range map[string]struct {
		handler     func(runs *atomic.Int32) http.HandlerFunc
		spec, other string
	}{
		"small": {
			func(runs *atomic.Int32) http.HandlerFunc {
				return inPieces(runs, strong)
			}, "bytes=0-4", "bytes=5-9",
		},
		"large": {
			func(runs *atomic.Int32) http.HandlerFunc {
				large, small := pieceOf(runs, func() {}), inPieces(runs, strong)
				return func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Range") == "bytes=0-4" {
						small(w, r)
						return
					}
					large(w, r)
				}
			}, second, "bytes=0-4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{MaxLoads: 8})
				var runs atomic.Int32
				h := cache.Handler(c.handler(&runs))
				gate, done := make(chan struct{}), make(chan struct{})
				slow := httptest.NewRecorder()
				go func() {
					defer close(done)
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("Range", c.spec)
					h.ServeHTTP(stuckWriter{slow, gate}, r)
				}()
				synctest.Wait()
				again := asks(h, "GET", "/", "Range", c.spec)
				if again.Code != http.StatusPartialContent || runs.Load() != 1 {
					t.Errorf("%d after %d runs", again.Code, runs.Load())
				}
				for range 2 {
					if got := asks(h, "GET", "/", "Range",
						c.other); got.Code != http.StatusPartialContent || runs.Load() != 2 {
						t.Errorf("the other part: %d after %d runs", got.Code, runs.Load())
					}
				}
				if asks(h, "GET", "/other"); runs.Load() != 3 {
					t.Errorf("%d runs", runs.Load())
				}
				for range 2 {
					if got := asks(h, "GET", "/third", "Range",
						c.other); got.Code != http.StatusPartialContent || runs.Load() != 4 {
						t.Errorf("another resource: %d after %d runs", got.Code, runs.Load())
					}
				}
				close(gate)
				if <-done; slow.Body.String() != again.Body.String() ||
					slow.Result().Header["X-Late"] != nil {
					t.Errorf("got %d bytes, %v", slow.Body.Len(), slow.Result().Header)
				}
			})
		})
	}
}

// A client that doesn't read a response that can't be stored as a part doesn't keep others from
// storing parts of the resource.
func TestSlowClientOfWhatIsNoPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 8, MaxBody: 1 << 10})
		var runs atomic.Int32
		large, small := pieceOf(&runs, func() {}), inPieces(&runs, strong)
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") == "bytes=1048576-" {
				large(w, r)
				return
			}
			small(w, r)
		}))
		slow := idles(h, "/", "Range", "bytes=1048576-")
		for range 2 {
			if got := ranged(h, "0-4"); got != "01234" || runs.Load() != 2 {
				t.Errorf("got %q after %d runs", got, runs.Load())
			}
		}
		close(slow.reads)
	})
}

// The client of a large part gets it while the handler makes it.
func TestRangeFlowsWhileItIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		var runs atomic.Int32
		gate, done := make(chan struct{}), make(chan struct{})
		h := cache.Handler(pieceOf(&runs, func() { <-gate }))
		w := httptest.NewRecorder()
		go func() {
			defer close(done)
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Range", "bytes=1048576-")
			h.ServeHTTP(w, r)
		}()
		synctest.Wait()
		if w.Code != http.StatusPartialContent || w.Body.Len() != 1<<19 {
			t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
		}
		close(gate)
		if <-done; w.Body.Len() != 1<<20 ||
			w.Result().Header.Get("Cache-Status") != "cacheguard; fwd=uri-miss; stored" {
			t.Errorf("%d bytes, %v", w.Body.Len(), w.Result().Header)
		}
	})
}

// goneWriter is a client that has gone. Its writer may panic because of that.
type goneWriter struct {
	*httptest.ResponseRecorder
	panics bool
	writes *int
}

func (w goneWriter) Write([]byte) (int, error) {
	*w.writes++
	if w.panics {
		panic(http.ErrAbortHandler)
	}
	return 0, io.ErrClosedPipe
}

// A part is stored although its client has gone.
func TestClientOfARangeLeaves(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cache := newCache(t, middleware.Options{})
			var runs atomic.Int32
			ctx, leave := context.WithCancel(t.Context())
			h := cache.Handler(pieceOf(&runs, func() { leave(); synctest.Wait() }))
			r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
			r.Header.Set("Range", "bytes=1048576-")
			writes := 0
			func() {
				defer func() {
					if v := recover(); panics != (v == http.ErrAbortHandler) {
						t.Errorf("panic: %v", v)
					}
				}()
				h.ServeHTTP(goneWriter{httptest.NewRecorder(), panics, &writes}, r)
			}()
			if got := asks(h, "GET", "/", "Range", "bytes=1048576-"); got.Body.Len() != 1<<20 ||
				runs.Load() != 1 {
				t.Errorf("%d bytes after %d runs", got.Body.Len(), runs.Load())
			}
			if writes != 1 {
				t.Errorf("%d writes to a client that has gone", writes)
			}
		})
	}
}

// A handler may break off, flush, write too much or set a trailer. Then its client sees the same as
// without the cache, and nothing is stored.
func TestPartsThatAreNone(t *testing.T) {
	head := func(w http.ResponseWriter) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Range", "bytes 0-4/10")
		w.WriteHeader(http.StatusPartialContent)
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"panic": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			fmt.Fprint(w, "01234")
			panic(http.ErrAbortHandler)
		}, "01234"},
		"short": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			fmt.Fprint(w, "0123")
		}, "0123"},
		"long": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			fmt.Fprint(w, "012")
			fmt.Fprint(w, "345")
		}, "012345"},
		"no body": {func(w http.ResponseWriter, r *http.Request) { head(w) }, ""},
		"nothing": {
			func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Said", "1") }, "",
		},
		"two 206s": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			head(w)
			fmt.Fprint(w, "0123")
		}, "0123"},
		"flushed": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			fmt.Fprint(w, "01")
			_ = http.NewResponseController(w).Flush()
			fmt.Fprint(w, "234")
		}, "01234"},
		"flushed by type": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			fmt.Fprint(w, "01")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "234")
		}, "01234"},
		"trailer": {func(w http.ResponseWriter, r *http.Request) {
			head(w)
			fmt.Fprint(w, "01234")
			w.Header().Set(http.TrailerPrefix+"Sum", "1")
		}, "01234"},
		"the whole": {func(w http.ResponseWriter, r *http.Request) { page(w, digits) }, digits},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := &unstoredEvents{}
				cache := newCache(t, middleware.Options{Observer: told})
				runs := 0
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					c.handler(w, r)
				}))
				for range 2 {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("Range", "bytes=0-4")
					func() {
						defer func() { _ = recover() }()
						h.ServeHTTP(w, r)
					}()
					if got := w.Body.String(); got != c.want {
						t.Errorf("got %q", got)
					}
					if name == "nothing" && w.Result().Header.Get("X-Said") == "" ||
						name == "trailer" && w.Result().Trailer.Get("Sum") == "" ||
						name == "the whole" && w.Result().Header.Get("Cache-Control") == "" {
						t.Errorf("got %v", w.Result())
					}
					if got := strings.Join(told.take(), " "); name != "panic" && got != "range" {
						t.Errorf("observers are told %q", got)
					}
				}
				if runs != 2 {
					t.Errorf("%d runs", runs)
				}
			})
		})
	}
}

// A goroutine of a handler may flush a part while another one still writes it, as a proxy does.
func TestPartFlushedFromTwoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		client := newStalling("write")
		client.armed.Store(true)
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Range", "bytes 0-4/10")
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, "012")
			var flushes sync.WaitGroup
			for range 2 {
				flushes.Go(func() { _ = http.NewResponseController(w).Flush() })
			}
			synctest.Wait() // both wait for the client
			close(client.goOn)
			flushes.Wait()
			fmt.Fprint(w, "34")
		}))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", "bytes=0-4")
		h.ServeHTTP(client, r)
		if got := client.got(); got != "01234" {
			t.Errorf("got %q", got)
		}
	})
}

// A goroutine of a handler may write more than the part after the handler has returned.
func TestPartWithALateWriter(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			cache := newCache(t, middleware.Options{})
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Content-Range", "bytes 0-4/10")
				w.WriteHeader(http.StatusPartialContent)
				fmt.Fprint(w, "01234")
				go fmt.Fprint(w, "5")
			}))
			if w := asks(h, "GET", "/", "Range", "bytes=0-4"); w.Code != 206 {
				t.Errorf("status %d", w.Code)
			}
			synctest.Wait()
		})
	}
}

// If a part is longer than it says, it is for its own client alone as soon as this is known. So no
// handler fills the memory with its part.
func TestPartsBeyondTheirLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *httptest.ResponseRecorder
		h := newCache(t,
			middleware.Options{}).
			Handler(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
				to.Header().Set("Cache-Control", "max-age=60")
				to.Header().Set("Content-Range", "bytes 0-4/10")
				to.WriteHeader(http.StatusPartialContent)
				for n, piece := range []string{"0123", "4", "5", "6"} {
					_, _ = io.WriteString(to, piece)
					if want := map[bool]string{true: digits[:n+4]}[n > 1]; w.Body.String() != want {
						t.Errorf("after piece %d the client has %q; want %q", n, w.Body, want)
					}
				}
			}))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Range", "bytes=0-4")
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
	})
}
