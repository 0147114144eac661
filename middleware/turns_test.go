package middleware_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// crossing are the kinds of requests that no stored response answers.
var crossing = map[string]func(r *http.Request){
	"Upgrade":    func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
	"Connection": func(r *http.Request) { r.Header.Set("Connection", "X-Plan") },
	"If-Match":   func(r *http.Request) { r.Header.Set("If-Match", `"x"`) },
	"If-Unmodified-Since": func(r *http.Request) {
		r.Header.Set("If-Unmodified-Since", "Sat, 21 Nov 2020 20:00:00 GMT")
	},
	"no-store": func(r *http.Request) {
		r.Header.Set("Cache-Control", "no-store")
		r.URL.Path, r.RequestURI = "/cold", "/cold"
	},
	"no-store, no-cache": func(r *http.Request) {
		r.Header.Set("Cache-Control", "no-store, no-cache")
	},
	"Range": func(r *http.Request) {
		r.Header.Set("Range", "bytes=0-1")
		r.Header.Set("Cache-Control", "no-cache")
	},
	"chunked body": func(r *http.Request) {
		r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
	},
	"body": func(r *http.Request) { r.ContentLength = 1 },
	"HEAD": func(r *http.Request) {
		r.Method = "HEAD"
		r.Header.Set("Pragma", "no-cache")
	},
	"strange Host": func(r *http.Request) { r.Host = "a b" },
	"no-cache": func(r *http.Request) {
		r.Header.Set("Cache-Control", "no-cache")
		r.URL.RawQuery, r.RequestURI = "", "/"
	},
}

// Whatever clients ask for, the number of handlers that run at a time is bounded, also for a page
// that is stored. Meanwhile requests for this page or another page are answered.
func TestEveryRunIsCounted(t *testing.T) {
	for name, edit := range crossing {
		for _, most := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s/%d", name, most), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cache := newCache(t, middleware.Options{
						MaxLoads: most, WaitTimeout: time.Hour, LoadTimeout: time.Hour,
						LeaseTTL: time.Hour,
					})
					var running, peak atomic.Int32
					hold := make(chan struct{})
					h := cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						if r.Header.Get("X-Attack") != "" {
							n := running.Add(1)
							defer running.Add(-1)
							for p := peak.Load(); p < n &&
								!peak.CompareAndSwap(p, n); p = peak.Load() {
							}
							<-hold
						}
						page(w, "page")
					}))
					asks(h, "GET", "/")
					var all sync.WaitGroup
					for range 60 {
						all.Go(func() {
							r := httptest.NewRequest("GET", "/", nil)
							r.Header.Set("X-Attack", "1")
							edit(r)
							h.ServeHTTP(httptest.NewRecorder(), r)
						})
					}
					synctest.Wait()
					// Requests with no-cache have the only slot and are coalesced.
					if name != "no-cache" || most > 1 {
						for _, target := range []string{"/", "/other"} {
							if got := asks(h, "GET", target).Body.String(); got != "page" {
								t.Errorf("%s: %q", target, got)
							}
						}
					}
					if n := peak.Load(); n < 1 || int(n) > most {
						t.Errorf("%d handlers ran at a time", n)
					}
					close(hold)
					all.Wait()
				})
			})
		}
	}
}

// Event streams, WebSockets and other responses that are sent to their client while the handler
// runs are counted only until they start. So streams that stay open take no slot from later
// requests.
func TestStreamsCountByTheirStart(t *testing.T) {
	for name, c := range map[string]struct {
		field, value string
		begin        func(w http.ResponseWriter)
	}{
		"flushed": {"If-Match", `"x"`, func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).Flush()
		}},
		"hijacked": {"Upgrade", "websocket", func(w http.ResponseWriter) {
			_, _, _ = http.NewResponseController(w).Hijack()
		}},
		"switched": {"Upgrade", "websocket", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}},
		"events, not flushed": {"Cache-Control", "no-store", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			fmt.Fprint(w, "data: 1\n\n")
		}},
		"private, and flushed": {"Accept", "*/*", func(w http.ResponseWriter) {
			w.Header().Set("Cache-Control", "private")
			fmt.Fprint(w, strings.Repeat("x", 1<<14))
			_ = http.NewResponseController(w).Flush()
		}},
		"private, and hijacked": {"Accept", "*/*", func(w http.ResponseWriter) {
			w.Header().Set("Cache-Control", "private")
			fmt.Fprint(w, strings.Repeat("x", 1<<14))
			_, _, _ = http.NewResponseController(w).Hijack()
		}},
		"events": {"Accept", "text/event-stream", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{MaxLoads: 1})
				var running atomic.Int32
				hold := make(chan struct{})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					c.begin(w)
					running.Add(1)
					<-hold
				}))
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						r := httptest.NewRequest("GET", "/", nil)
						r.Header.Set(c.field, c.value)
						h.ServeHTTP(taken{httptest.NewRecorder()}, r)
					})
				}
				synctest.Wait()
				if n := running.Load(); n != 20 {
					t.Errorf("%d streams are open, want 20", n)
				}
				close(hold)
				all.Wait()
			})
		})
	}
}

// taken is a recorder whose connection can be taken over.
type taken struct{ *httptest.ResponseRecorder }

func (taken) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// If too many requests wait, the next one gets a 503 at once. A request that has waited for too
// long gets a 503, too.
func TestTooManyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 1, LoadTimeout: time.Minute})
		hold := make(chan struct{})
		h := cache.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
		var all sync.WaitGroup
		var ok, refused atomic.Int32
		for range 100 {
			all.Go(func() {
				switch w := asks(h, "GET", "/", "If-Match", "*"); w.Code {
				case http.StatusOK:
					ok.Add(1)
				case http.StatusServiceUnavailable:
					refused.Add(1)
					if w.Header().Get("Retry-After") == "" {
						t.Error("no Retry-After")
					}
				}
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != 35 {
			t.Errorf("%d of 100 were refused at once, want 35: one runs, 64 wait", n)
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if n := refused.Load(); n != 99 {
			t.Errorf("%d of 100 were refused, want all but the one that runs", n)
		}
		close(hold)
		all.Wait()
		if n := ok.Load(); n != 1 {
			t.Errorf("%d were answered", n)
		}
	})
}

// A request that a handler sends to its own cache is part of the handler's run.
func TestRunsInRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 1})
		var h http.Handler
		h = cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/outer" {
				inner := httptest.NewRequest("GET", "/inner", nil).WithContext(r.Context())
				inner.Header.Set("If-Match", "*")
				h.ServeHTTP(w, inner)
				return
			}
			fmt.Fprint(w, "inner")
		}))
		for _, header := range [][]string{nil, {"If-Match", "*"}} {
			if got := asks(h, "GET", "/outer", header...).Body.String(); got != "inner" {
				t.Errorf("%q: %q", header, got)
			}
		}
	})
}
