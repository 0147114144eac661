//go:build !race

package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A hit from the local tier allocates at most six times more often than the bare handler. The race
// detector allocates too.
func TestLocalHitAllocations(t *testing.T) {
	router, _ := benchRouter(t, nil)
	perRequest := func(path string) float64 {
		r, w := benchRequest(path), &unread{}
		return testing.AllocsPerRun(2000, func() {
			if !serveUnread(router, r, w) {
				t.Fatalf("%s: a response of %d bytes", path, w.n)
			}
		})
	}
	bare, local := perRequest("/bare"), perRequest("/local")
	t.Logf("bare %v, local hit %v allocations", bare, local)
	if local > bare+6 {
		t.Errorf("a local hit allocates %v times, the bare handler %v: %v more; want 6 at most", local, bare, local-bare)
	}
}

// A response that is for its client only costs so many allocations more than the bare handler does.
// First the response says so, then the request. Four of the first figure keep a copy of the
// request's header from the handler and count its turn, and one says that what stands there was not
// invalidated; four of the second count its turn.
func TestUnsharedAllocations(t *testing.T) {
	store := memstore.New(memstore.Options{})
	cache, err := middleware.New(store, middleware.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cache.Close(), store.Close() }()
	private := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Cache-Control"] = []string{"private"}
		_, _ = w.Write(kilobyte)
	})
	perRequest := func(h http.Handler, asked ...string) float64 {
		r, w := benchRequest("/"), &unread{}
		if len(asked) > 0 {
			r.Header["Cache-Control"] = asked
		}
		return testing.AllocsPerRun(2000, func() {
			if !serveUnread(h, r, w) {
				t.Fatalf("a response of %d bytes", w.n)
			}
		})
	}
	bare := perRequest(private)
	for _, c := range []struct {
		asked []string
		most  float64
	}{{nil, 120}, {[]string{"no-store"}, 11}} {
		if got := perRequest(cache.Handler(private), c.asked...) - bare; got > c.most {
			t.Errorf("asked for %q: %v allocations more than the bare handler, want %v at most", c.asked, got, c.most)
		}
	}
}

// A body that grows without a Content-Length doubles while it is recorded, so that little is
// copied.
func TestLargeBodiesGrow(t *testing.T) {
	for _, size := range []int{3 << 20, 4 << 20} {
		store := memstore.New(memstore.Options{MaxBytes: 1 << 10}) // which keeps no page
		cache, err := middleware.New(store, middleware.Options{LocalBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		piece := strings.Repeat("x", 64<<10)
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			for left := size; left > 0; left -= len(piece) {
				_, _ = io.WriteString(w, piece[:min(left, len(piece))])
			}
		}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := &paced{header: http.Header{}}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > uint64(6*size) { // what is stored is among them
			t.Errorf("a page of %d KiB takes %d KiB", size>>10, made>>10)
		}
		_, _ = cache.Close(), store.Close()
	}
}
