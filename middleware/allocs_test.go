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

// A hit from the local tier allocates at most six times more often than the bare handler. The test
// doesn't run with the race detector, because the race detector allocates, too.
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
		t.Errorf("a local hit allocates %v times, the bare handler %v: %v more; want 6 at most",
			local, bare, local-bare)
	}
}

// A response that is for its own client only costs a bounded number of allocations more than the
// bare handler. In the first case the response says that it is for one client, in the second case
// the request does. In the first case four allocations keep a copy of the request's header from the
// handler and count its turn, one keeps the request for a run in the background, and one reports
// that no stored response was invalidated.
// In the second case four allocations count the turn.
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
	}{{nil, 121}, {[]string{"no-store"}, 11}} {
		if got := perRequest(cache.Handler(private), c.asked...) - bare; got > c.most {
			t.Errorf("asked for %q: %v allocations more than the bare handler, want %v at most",
				c.asked, got, c.most)
		}
	}
}

// While a body without a Content-Length is recorded, its buffer is doubled when it is full, so that
// few bytes are copied.
func TestLargeBodiesGrow(t *testing.T) {
	for _, size := range []int{3 << 20, 4 << 20} {
		store := memstore.New(memstore.Options{MaxBytes: 1 << 10}) // too small for any page
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
		// The memory includes the stored body.
		if made := after.TotalAlloc - before.TotalAlloc; made > uint64(6*size) {
			t.Errorf("a page of %d KiB takes %d KiB", size>>10, made>>10)
		}
		_, _ = cache.Close(), store.Close()
	}
}
