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

// A client may send a request that the handler refuses. The stored page stays for others if the
// origin fails later. If the refusal is about the resource, the page doesn't stay.
func TestRefusalRemovesNoStalePage(t *testing.T) {
	for status, stays := range map[int]bool{
		400: true, 405: true, 406: true, 408: true, 411: true, 412: true, 413: true, 414: true,
		415: true, 416: true, 417: true, 421: true, 422: true, 425: true, 426: true, 428: true,
		429: true, 431: true, 1400: true,
		401: false, 402: false, 403: false, 404: false, 407: false, 409: false, 410: false,
		418: false, 423: false, 424: false, 451: false, 499: false,
	} {
		large := status > 1000 // a body that is too large to be stored, although it is fresh
		status %= 1000
		synctest.Test(t, func(t *testing.T) {
			says := 200
			opts := middleware.Options{StaleIfError: time.Hour, MaxBody: 100}
			h := newCache(t, opts).Handler(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if says == 200 {
						page(w, "all is well")
						return
					}
					if large && says == status {
						w.Header().Set("Cache-Control", "max-age=60")
						defer fmt.Fprint(w, strings.Repeat("x", 200))
					}
					w.WriteHeader(says)
				}))
			asks(h, "GET", "/")
			<-time.After(2 * time.Minute)
			says = status
			if got := asks(h, "GET", "/"); got.Code != status {
				t.Errorf("%d: its own client got %d", status, got.Code)
			}
			says = 500
			if got := asks(h, "GET", "/"); (got.Code == 200) != stays {
				t.Errorf("%d: when the origin failed afterwards, another client got %d", status,
					got.Code)
			}
		})
	}
}

// A client asks for a newer response in such a way that the result is for nobody else, or is an
// error that only the options make fresh. The response that is stored for all stays, is fresh, and
// is given to all clients.
func TestReloadTurnsNothingOff(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"406": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotAcceptable)
		},
		"302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/login", http.StatusFound)
		},
		"404": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"private": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "private")
		},
		"no-store": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store, max-age=9")
		},
		"no-cache": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
		},
		"Set-Cookie": func(w http.ResponseWriter, r *http.Request) {
			withCookie("max-age=60")(w.Header(), "x")
		},
		"Vary: *": func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Vary"] = []string{"*"}
			page(w, "")
		},
		"nothing": func(w http.ResponseWriter, r *http.Request) {},
		"event stream": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			page(w, "")
		},
		"too large": func(w http.ResponseWriter, r *http.Request) {
			page(w, strings.Repeat("x", 200))
		},
		"too large, and says so": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "200")
			page(w, strings.Repeat("x", 200))
		},
		"to be validated": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=0")
			w.Header().Set("Etag", `"2"`)
		},
		"405, public, with a date": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "public")
			w.Header().Set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
			w.WriteHeader(http.StatusMethodNotAllowed)
		},
		"501, with a date": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
			w.WriteHeader(http.StatusNotImplemented)
		},
		"500": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"panic": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for _, reload := range [][]string{
			{"Cache-Control", "no-cache"}, {"Cache-Control", "max-age=0"}, {"Pragma", "no-cache"},
			{"Cache-Control", "min-fresh=99"},
			{"Cache-Control", "no-cache", "Cookie", "session=alice"},
			{"Cache-Control", "no-cache", "Authorization", "x"},
		} {
			for _, local := range []int{0, 1 << 20} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, reload, local), func(t *testing.T) {
					cache := newCache(t, middleware.Options{
						MaxBody: 100, LocalBytes: local, NegativeTTL: 30 * time.Second,
						Heuristic: 0.5,
					})
					var runs atomic.Int32
					h := cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						runs.Add(1)
						if r.Header.Get("X-Attack") != "" {
							answer(w, r)
							return
						}
						page(w, "for all")
					}))
					asks(h, "GET", "/")
					asks(h, "GET", "/")
					func() {
						defer func() { _ = recover() }()
						asks(h, "GET", "/", append([]string{"X-Attack", "1"}, reload...)...)
					}()
					runs.Store(0)
					for range 20 {
						if got := asks(h, "GET", "/").Body.String(); got != "for all" {
							t.Fatalf("got %q", got)
						}
					}
					if n := runs.Load(); n != 0 {
						t.Errorf("%d of 20 requests ran the handler", n)
					}
				})
			}
		}
	}
}

// After a client error on a cold page the next requests don't run the handler side by side either.
func TestRefusalTurnsNothingOff(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 406, 410, 413, 414, 415, 416, 417, 501} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{})
				var runs atomic.Int32
				hold := make(chan struct{})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Attack") != "" {
						w.WriteHeader(status)
						return
					}
					runs.Add(1)
					<-hold
					page(w, "for all")
				}))
				asks(h, "GET", "/", "X-Attack", "1")
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() { asks(h, "GET", "/") })
				}
				synctest.Wait()
				close(hold)
				all.Wait()
				if n := runs.Load(); n != 1 {
					t.Errorf("the handler ran %d times for 100 requests", n)
				}
			})
		})
	}
}

// As soon as one request has found out that a page doesn't exist, requests for it run side by side.
func TestMissingPageHasNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		var runs atomic.Int32
		hold := make(chan struct{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			<-hold
			http.NotFound(w, r)
		}))
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got := asks(h, "GET", "/").Code; got != http.StatusNotFound {
					t.Errorf("got %d", got)
				}
			})
		}
		for _, want := range []int32{1, 100} {
			synctest.Wait()
			if n := runs.Load(); n != want {
				t.Errorf("the handler runs for %d; want %d", n, want)
			}
			if want == 1 {
				hold <- struct{}{}
			}
		}
		close(hold)
		all.Wait()
	})
}

// If a HEAD is refused, this tells nothing about a GET, whether or not the page is stale.
func TestRefusedHeadTurnsNothingOff(t *testing.T) {
	for _, age := range []time.Duration{5 * time.Second, 15 * time.Second} {
		for _, refusal := range []string{"private", "no-store"} {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{})
				var runs atomic.Int32
				hold := make(chan struct{})
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Attack") != "" {
						w.Header().Set("Cache-Control", refusal)
						return
					}
					if runs.Add(1) > 1 {
						<-hold
					}
					w.Header().Set("Cache-Control", "max-age=10")
					w.Header().Set("Etag", `"1"`) // so that the response stays stored
					_, _ = w.Write([]byte("for all"))
				}))
				asks(h, "GET", "/")
				<-time.After(age)
				asks(h, "HEAD", "/", "X-Attack", "1", "Cache-Control", "no-cache")
				<-time.After(20*time.Second - age)
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() { asks(h, "GET", "/") })
				}
				synctest.Wait()
				close(hold)
				all.Wait()
				if n := runs.Load(); n != 2 {
					t.Errorf("after %v, %s: the handler ran %d times for 100 requests", age,
						refusal, n-1)
				}
			})
		}
	}
}

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
