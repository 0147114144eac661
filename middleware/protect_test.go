package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
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

// A client that sends Authorization can't make other clients run the handler themselves, neither
// waiting clients nor later ones. It can't remove a stale response either.
func TestAuthorizationDisarmsNothing(t *testing.T) {
	for name, stored := range map[string]bool{"stale": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				_, h := front(t, middleware.Options{
					DefaultTTL: time.Minute, StaleWhileRevalidate: time.Hour,
					StaleIfError: time.Hour,
				},
					func(w http.ResponseWriter, r *http.Request) {
						runs.Add(1)
						<-time.After(time.Second)
						fmt.Fprintf(w, "page of %q", r.Header.Get("Authorization"))
					})
				if stored {
					fetch(h, "/")
					<-time.After(2 * time.Minute)
				}
				runs.Store(0)
				answers := make(chan string, 16)
				for i := range 16 {
					go func() {
						if i == 0 {
							answers <- fetch(h, "/", "Authorization", "x").Body.String()
							return
						}
						<-time.After(time.Millisecond)
						answers <- fetch(h, "/").Body.String()
					}()
				}
				count := map[string]int{}
				for range 16 {
					count[<-answers]++
				}
				if count[`page of "x"`] != 1 || count[`page of ""`] != 15 {
					t.Errorf("answers: %v", count)
				}
				synctest.Wait()
				<-time.After(2 * time.Second)
				if n := runs.Load(); n != 2 {
					t.Errorf("%d runs; want one for the one with Authorization, one for all others",
						n)
				}
				fetch(h, "/")
				if n := runs.Load(); n != 2 {
					t.Errorf("a later request: %d runs", n)
				}
			})
		})
	}
}

// A client may ask for a newer response and get one that can't be shared. The fresh page stays, and
// requests for it are still coalesced. This also holds for a 304 and for a HEAD.
func TestAnswersThatCantBeSharedTurnNothingOff(t *testing.T) {
	says := func(status int, fields ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(fields); i += 2 {
				w.Header().Set(fields[i], fields[i+1])
			}
			w.WriteHeader(status)
		}
	}
	for name, attack := range map[string]http.HandlerFunc{
		"304 private":    says(304, "Cache-Control", "private", "Etag", `"1"`),
		"304 Set-Cookie": says(304, "Set-Cookie", "a=b"),
		"304 Vary":       says(304, "Vary", "*"),
		"304 no-store":   says(304, "Cache-Control", "no-store"),
		"200 private":    says(200, "Cache-Control", "private"),
		"200 other":      says(200, "Cache-Control", "private", "Etag", `"2"`),
	} {
		for _, method := range []string{"GET", "HEAD"} {
			cache := newCache(t, middleware.Options{})
			var runs atomic.Int32
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				if r.Header.Get("X-Attack") != "" {
					attack(w, r)
					return
				}
				w.Header().Set("Etag", `"1"`)
				page(w, "for all")
			}))
			asks(h, "GET", "/")
			asks(h, method, "/", "X-Attack", "1", "Cache-Control", "no-cache")
			runs.Store(0)
			for range 3 {
				asks(h, "GET", "/")
			}
			if n := runs.Load(); n > 0 {
				t.Errorf("after %s %s: %d runs for a fresh page", method, name, n)
			}
		}
	}
}

// A client can send fields of a megabyte. Reading one takes time in proportion to its length,
// whatever is in it. If it took the square of the length, one request would take minutes.
func TestLongFieldsAreReadQuickly(t *testing.T) {
	const size = 1 << 20
	opts := middleware.Options{
		Normalize:      []string{"Accept", "Accept-Language", "Accept-Encoding"},
		TrustForwarded: []string{"X-Forwarded-Host"},
		TokenField:     "X-Token", TokenCookie: "token",
		IgnoreQuery: []string{"utm_*"}, IgnoreCookies: []string{"_ga*"},
	}
	_, h := front(t, opts, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Etag", `"a"`)
		fmt.Fprint(w, "page")
	})
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < 4*size; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	long := map[string]string{"names": numbered("n%d,"), "parameters": "a/b" + numbered(";p%d=1")}
	for _, unit := range []string{
		`"\`, `"`, `a=\",`, `a="\,`, `a="b",`, `",`, `a,`, `,`, ` `, `W/"a",`, `W/"`, `a;q=`, `0-1,`,
		`a=b; `, `for="`, `for=a;`, `(`,
	} {
		long[unit] = strings.Repeat(unit, size/len(unit))
	}
	for _, field := range []string{
		"Cache-Control", "Pragma", "Accept", "Accept-Language", "Accept-Encoding", "If-None-Match",
		"If-Modified-Since", "If-Range", "Range", "Cookie", "Connection", "X-Forwarded-Host", "X-Token",
	} {
		for what, value := range long {
			if field == "Range" {
				value = "bytes=" + value
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if field == "If-Range" {
				r.Header.Set("Range", "bytes=0-1")
			}
			r.Header.Set(field, value)
			served := make(chan struct{})
			go func() {
				defer close(served)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			waittest.Next(t, fmt.Sprintf("%s of many %q", field, what), served)
		}
	}
}
