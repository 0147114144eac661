package middleware_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

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

// If a middleware behind the cache compresses parts, the result is a compressed part with the ETag
// and the position of the uncompressed one. A client can look for ranges whose length doesn't
// change by compression. No other client gets these bytes.
func TestCompressedPartsAreNobodyElses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 4096) // each byte carries four bits of information
	for i := range text {
		text[i] = "0123456789abcdef"[rnd.IntN(16)]
	}
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h := newCache(t,
			middleware.Options{}).
			Handler(chimiddleware.Compress(5)(http.HandlerFunc(func(
				w http.ResponseWriter, r *http.Request,
			) {
				runs++
				w.Header()["Cache-Control"], w.Header()["Etag"] = []string{"max-age=60"},
					[]string{`"1"`}
				http.ServeContent(w, r, "a.txt", time.Time{}, bytes.NewReader(text))
			})))
		asLong := 0
		for n := 20; n < 200; n++ {
			target := fmt.Sprintf("/%d", n)
			first := asks(h, "GET", target, "Accept-Encoding", "gzip", "Range",
				fmt.Sprintf("bytes=0-%d", n-1))
			if first.Body.Len() != n {
				continue
			}
			asLong++
			before := runs
			second := asks(h, "GET", target, "Accept-Encoding", "gzip", "Range", "bytes=0-19")
			if runs == before {
				t.Errorf("the first 20 bytes of %d are %q", n, second.Body)
			}
		}
		if asLong == 0 {
			t.Error("no range is as long when it is compressed")
		}
	})
}

// Requests for very small ranges don't displace the part that other clients get.
func TestCrumbsDriveNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		text := bytes.Repeat([]byte(digits), 100)
		h := newCache(t,
			middleware.Options{}).
			Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header()["Cache-Control"], w.Header()["Etag"] = []string{"max-age=60"},
					[]string{`"1"`}
				http.ServeContent(w, r, "a.txt", time.Time{}, bytes.NewReader(text))
			}))
		ranged(h, "0-199")
		for i := range 100 {
			ranged(h, fmt.Sprintf("%d-%[1]d", 300+5*i))
		}
		before := runs
		if got := ranged(h, "10-19"); got != digits || runs != before {
			t.Errorf("%q, %d runs", got, runs-before)
		}
	})
}
