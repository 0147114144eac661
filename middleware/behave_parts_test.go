package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/middleware"
)

const digits = "0123456789"

// inPieces answers requests for one range of the digits, and counts them.
func inPieces(runs *atomic.Int32, h http.Header) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		for name, values := range h {
			w.Header()[name] = values
		}
		var first, last int
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n != 2 {
			fmt.Fprint(w, digits)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/10", first, last))
		w.WriteHeader(http.StatusPartialContent)
		fmt.Fprint(w, digits[first:last+1])
	}
}

var strong = http.Header{"Cache-Control": {"max-age=60"}, "Etag": {`"1"`}}

func ranged(h http.Handler, spec string, header ...string) string {
	return asks(h, "GET", "/", append(header, "Range", "bytes="+spec)...).Body.String()
}

// If a handler answered before a purge, its part is not stored after the purge, neither as a part
// nor in a whole response.
func TestPartsAndPurges(t *testing.T) {
	for name, purge := range map[string]func(c *middleware.Cache, h http.Handler, t *testing.T){
		"Purge": func(c *middleware.Cache, _ http.Handler, t *testing.T) {
			_ = c.Purge(t.Context(), "http://example.com/")
		},
		"PurgeTags": func(c *middleware.Cache, _ http.Handler, t *testing.T) {
			_ = c.PurgeTags(t.Context(), "digits")
		},
		"POST": func(_ *middleware.Cache, h http.Handler, t *testing.T) {
			asks(h, "POST", "/")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{})
				var runs atomic.Int32
				tagged := strong.Clone()
				tagged.Set("Cache-Tag", "digits")
				pieces := inPieces(&runs, tagged)
				during := func() {}
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					pieces(w, r)
					if r.Method == "GET" {
						during()
					}
				}))
				ranged(h, "0-4")
				during = func() { during = func() {}; purge(cache, h, t) }
				ranged(h, "5-9")
				for _, spec := range []string{"3-6", "0-4", "5-9"} {
					before := runs.Load()
					if ranged(h, spec); runs.Load() == before {
						t.Errorf("%s is still there", spec)
					}
				}
			})
		})
	}
}

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

// A client can cause a part to be stored again and again. The response that is stored for all stays
// fresh and complete. The client learns from Cache-Status whether its part was stored. Fields that
// a layer in front has set for this client are given to nobody else.
func TestPartsAndOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &unstoredEvents{}
		cache := newCache(t, middleware.Options{Observer: told})
		var runs atomic.Int32
		pieces := inPieces(&runs, strong)
		inner := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Del("X-Taken-Back")
			pieces(w, r)
		}))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Client", r.Header.Get("X-Client"))
			w.Header().Set("X-Taken-Back", "1")
			inner.ServeHTTP(w, r)
		})
		first := asks(h, "GET", "/", "Range", "bytes=0-4", "X-Client", "1")
		if got := first.Header().Get("Cache-Status"); got != "cacheguard; fwd=uri-miss; stored" ||
			first.Header()["X-Taken-Back"] != nil {
			t.Errorf("Cache-Status %q, %v", got, first.Header())
		}
		if got := told.take(); len(got) > 0 {
			t.Errorf("observers are told %q", got)
		}
		second := asks(h, "GET", "/", "Range", "bytes=0-4", "X-Client", "2")
		if got := second.Header().Values("X-Client"); runs.Load() != 1 || len(got) != 1 ||
			got[0] != "2" {
			t.Errorf("X-Client %q after %d runs", got, runs.Load())
		}
		// The response is for all, because it has a lifetime of its own.
		users := asks(h, "GET", "/", "Range", "bytes=1-2", "Cookie", "user=1")
		if users.Body.String() != "12" || runs.Load() != 1 {
			t.Errorf("a user got %q after %d runs", users.Body, runs.Load())
		}
	})
}

// A part that is fresh only by the options is not given to a request that says who asks.
func TestPartsByTheOptionsAreForNobodyInParticular(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{DefaultTTL: 60e9})
		var runs atomic.Int32
		h := cache.Handler(inPieces(&runs, nil))
		ranged(h, "0-4")
		ranged(h, "0-4")
		if runs.Load() != 1 {
			t.Fatalf("%d runs", runs.Load())
		}
		ranged(h, "0-4", "Cookie", "user=1")
		ranged(h, "0-4", "Authorization", "x")
		if runs.Load() != 3 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// A part is selected by the request as it came, no matter how many handlers may run.
func TestPartsAreSelectedByWhatWasAsked(t *testing.T) {
	for _, most := range []int{-1, 0, 8} {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			varied := strong.Clone()
			varied.Set("Vary", "X-Size")
			pieces := inPieces(&runs, varied)
			h := newCache(t,
				middleware.Options{
					MaxLoads: most,
				}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("X-Size", "unknown")
				pieces(w, r)
			}))
			for _, size := range []string{"1", "1"} {
				ranged(h, "0-4", "X-Size", size)
			}
			if runs.Load() != 1 {
				t.Errorf("MaxLoads %d: %d runs", most, runs.Load())
			}
		})
	}
}
