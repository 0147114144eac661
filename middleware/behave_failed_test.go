package middleware_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

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

// A handler may flush its 304.
func TestNotModifiedMayBeFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		runs := 0
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "max-age=10")
			w.Header().Set("Etag", `"1"`)
			if r.Header.Get("If-None-Match") == `"1"` {
				w.WriteHeader(http.StatusNotModified)
				_ = http.NewResponseController(w).Flush()
				<-time.After(time.Second) // accounting
				return
			}
			_, _ = w.Write([]byte("all is well"))
		}))
		for i := range 3 {
			if w := asks(h, "GET", "/"); w.Code != 200 || w.Body.String() != "all is well" ||
				runs != i+1 {
				t.Errorf("got %d %q after %d runs", w.Code, w.Body, runs)
			}
			<-time.After(20 * time.Second)
		}
	})
}
