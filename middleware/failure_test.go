package middleware_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/cacheguard/cacheguard/middleware"
)

// Failures are remembered, and their requests are not: a client could fill the memory with them.
func TestFailuresKeepNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(time.Second)
			w.WriteHeader(http.StatusInternalServerError)
		})
		var requests []weak.Pointer[http.Request]
		var all sync.WaitGroup
		for range 3 { // the requests that waited for the first run share a second one
			r := httptest.NewRequest("GET", "/", nil)
			requests = append(requests, weak.Make(r))
			all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
		}
		all.Wait()
		time.Sleep(time.Hour)
		runtime.GC()
		runtime.GC()
		for i, r := range requests {
			if r.Value() != nil {
				t.Errorf("request %d is still in memory", i)
			}
		}
	})
}

// While there is a stale response to serve instead, a failure is held back. If a request doesn't
// accept the stale response, its client gets the failure if the handler ran for this client. Other
// clients get only the status.
func TestFailureHeldBackIsNotAnothersResponse(t *testing.T) {
	for name, fields := range map[string][]string{
		"Set-Cookie":    {"Set-Cookie", "session=1"},
		"private":       {"Cache-Control", "private"},
		"no-store":      {"Cache-Control", "no-store"},
		"Vary":          {"Vary", "X-User"},
		"Authorization": {},
	} {
		t.Run(name, func(t *testing.T) {
			f := memoryFleet(t, 1, middleware.Options{})
			hold, down := f.gate(), false
			f.route("/", func(w http.ResponseWriter, r *http.Request) {
				if !down {
					w.Header().Set("Cache-Control", "max-age=60, stale-if-error=600")
					_, _ = w.Write([]byte("all is well"))
					return
				}
				hold.pass()
				for i := 0; i < len(fields); i += 2 {
					w.Header().Set(fields[i], fields[i+1])
				}
				w.Header().Set("X-For", r.Header.Get("X-User"))
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = w.Write([]byte("not now, " + r.Header.Get("X-User")))
			})
			f.do(0, get("/")).want(t, 200, "all is well")
			down = true
			users := []string{"alice", "bob", "carol", "dave"}
			clients := f.startAll(len(users), func(i int) call {
				c := get("/", "Cache-Control", "no-cache", "X-User", users[i])
				if name == "Authorization" {
					c.header = append(c.header, "Authorization", "Bearer "+users[i])
				}
				return c
			})
			f.awaitShared(len(users))
			hold.open()
			own := 0
			for i, cl := range clients {
				got := cl.reply(t)
				if got.header.Get("X-For") == users[i] {
					own++
					got.want(t, http.StatusServiceUnavailable, "not now, "+users[i])
					continue
				}
				got.want(t, http.StatusServiceUnavailable, "Service Unavailable\n")
				if got.header["X-For"] != nil || got.header["Set-Cookie"] != nil {
					t.Errorf("%s got %q", users[i], got.header)
				}
			}
			if runs, _, _ := f.counts(); own < 1 || own > 2 || own != runs-1 {
				t.Errorf("%d clients got their own answer, want those whose handlers ran", own)
			}
		})
	}
}

// A failure with a freshness of its own goes to all requests that wait, without the fields that are
// for one client.
func TestFailureHeldBackIsShared(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	hold, down := f.gate(), false
	f.route("/", func(w http.ResponseWriter, r *http.Request) {
		if !down {
			w.Header().Set("Cache-Control", "max-age=60, stale-if-error=600")
			return
		}
		hold.pass()
		w.Header().Set("Cache-Control", `max-age=1, private="x-for"`)
		w.Header().Set("X-For", "the first one")
		http.Error(w, "not now", http.StatusServiceUnavailable)
	})
	f.do(0, get("/")).want(t, 200, "")
	f.fresh()
	down = true
	clients := f.startAll(4, func(int) call { return get("/", "Cache-Control", "no-cache") })
	f.awaitShared(4)
	hold.open()
	named := 0
	for _, cl := range clients {
		got := cl.reply(t)
		got.want(t, http.StatusServiceUnavailable, "not now\n")
		named += len(got.header["X-For"])
	}
	f.wantRuns(1, "four requests")
	if named > 1 {
		t.Errorf("%d clients got a field that was for one", named)
	}
}

// A failure is held back also if it is long, or if the handler writes it in pieces, as proxies do.
func TestFailureInPiecesIsHeldBack(t *testing.T) {
	long := strings.Repeat("not now. ", 200)
	for name, write := range map[string]func(w http.ResponseWriter){
		"flushed": func(w http.ResponseWriter) {
			for range 3 {
				_, _ = w.Write([]byte("not now. "))
				_ = http.NewResponseController(w).Flush()
			}
		},
		"long": func(w http.ResponseWriter) { _, _ = w.Write([]byte(long)) },
		"long list": func(w http.ResponseWriter) {
			_, _ = io.Copy(w, strings.NewReader(long+long))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 1, middleware.Options{MaxBody: 1000}, func(t *testing.T, f *fleet) {
				down := false
				f.route("/*", func(w http.ResponseWriter, r *http.Request) {
					if !down {
						w.Header().Set("Cache-Control", "max-age=60, stale-if-error=600")
						_, _ = w.Write([]byte("all is well"))
						return
					}
					w.WriteHeader(http.StatusServiceUnavailable)
					write(w)
				})
				const backoff = 400 * time.Millisecond // at least
				for try := range 20 {
					page := fmt.Sprint("/", try)
					down = false
					f.do(0, get(page)).want(t, 200, "all is well")
					down = true
					f.markStale(0, page)
					f.fresh()
					began := time.Now()
					for range 3 {
						f.do(0, get(page)).want(t, 200, "all is well")
					}
					if runs, _, _ := f.counts(); runs == 1 || time.Since(began) < backoff {
						f.wantRuns(1, "three requests, in the back-off after the first one")
						return
					}
				}
				t.Log("this machine is too slow to see what holds for the back-off")
			})
		})
	}
}

// A failure may have any Content-Length, for example that of the page which the handler wanted to
// send. The clients get the stale page, and no memory is taken for the failure.
func TestFailureThatPromisesMuchIsHeldBack(t *testing.T) {
	for name, length := range map[string]int64{"1 PiB": 1 << 50, "most": math.MaxInt64} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := false
				h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
					w http.ResponseWriter, r *http.Request,
				) {
					if !down {
						w.Header().Set("Cache-Control", "max-age=10, stale-if-error=600")
						_, _ = io.WriteString(w, "all is well")
						return
					}
					w.Header().Set("Content-Length", fmt.Sprint(length))
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, "x")
				}))
				asks(h, "GET", "/")
				<-time.After(20 * time.Second)
				down = true
				if got := asks(h, "GET", "/"); got.Code != 200 ||
					got.Body.String() != "all is well" {
					t.Errorf("got %d %q", got.Code, got.Body)
				}
			})
		})
	}
}

// If the handler fails because of one client's request, no other client gets the error. The
// requests that waited have one more run together.
func TestStrangersHandOutNoErrors(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter){
		"500":   func(w http.ResponseWriter) { w.WriteHeader(500) },
		"503":   func(w http.ResponseWriter) { http.Error(w, "no", http.StatusServiceUnavailable) },
		"panic": func(http.ResponseWriter) { panic("bad") },
		"abort": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"too few": func(w http.ResponseWriter) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Length", "9")
		},
	} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, always), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cache := newCache(t, middleware.Options{MaxLoads: 1})
					hold := make(chan struct{})
					var runs atomic.Int32
					h := cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						runs.Add(1)
						<-hold
						w.Header().Set("Cache-Control", "max-age=60")
						if always || r.Header.Get("X-Bad") != "" {
							w.Header().Del("Cache-Control")
							fail(w)
							return
						}
						fmt.Fprint(w, "page")
					}))
					var all sync.WaitGroup
					ask := func(then func(code int, body string), header ...string) {
						all.Go(func() {
							defer func() { _ = recover() }() // the handler's own client
							w := asks(h, "GET", "/", header...)
							then(w.Code, w.Body.String())
						})
					}
					ask(func(int, string) {}, "X-Bad", "yes")
					synctest.Wait()
					var good, bad atomic.Int32
					for range 1000 {
						ask(func(code int, body string) {
							if code == 200 && body == "page" {
								good.Add(1)
							} else if code >= 500 {
								bad.Add(1)
							}
						})
					}
					synctest.Wait()
					close(hold)
					all.Wait()
					switch {
					case runs.Load() != 2:
						t.Errorf("%d runs", runs.Load())
					case always && (good.Load() > 0 || bad.Load() < 999):
						t.Errorf("%d got a page, %d an error", good.Load(), bad.Load())
					case !always && good.Load() != 1000:
						t.Errorf("%d of 1000 got the page", good.Load())
					}
				})
			})
		}
	}
}
