package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/cacheguard/cacheguard/middleware"
)

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

// By HTTP/2 a request for a range can leave its empty body open, too. A handler that reads bodies
// must not wait for this client, because meanwhile the parts of other clients would not be stored.
func TestOpenBodyOfARange(t *testing.T) {
	server, begun, over := bothProtocols(t, middleware.Options{MaxLoads: 8}, func(
		w http.ResponseWriter, r *http.Request,
	) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Cache-Control", "max-age=60")
		http.ServeContent(w, r, "page.txt", time.Time{}, strings.NewReader(digits))
	})
	opens(t, server.Listener.Addr().String(), true, "content-length", "0", "range", "bytes=0-4")
	for what, event := range map[string]chan bool{"begin": begun, "end": over} {
		select {
		case <-event:
		case <-time.After(longWait):
			t.Fatalf("the handler doesn't %s", what)
		}
	}
}

// If a part is longer than it says, it is for its own client alone as soon as this is known. So no
// handler fills the memory with its part.
func TestPartsBeyondTheirLength(t *testing.T) {
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
}
