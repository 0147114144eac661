package middleware_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/middleware"
)

// When the handler has answered a HEAD, the HEAD doesn't wait for a GET that is under way on any
// replica.
func TestHeadWaitsForNoGet(t *testing.T) {
	for name, fields := range map[string][]string{
		"a GET": nil, "a reload": {"Cache-Control", "no-cache"},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				hold := f.gate()
				var held atomic.Bool
				f.route("/", func(w http.ResponseWriter, r *http.Request) {
					if held.Load() && r.Method == "GET" {
						hold.pass()
					}
					page(w, "all is well")
				})
				f.do(0, get("/")).want(t, 200, "all is well")
				f.markStale(0, "/")
				held.Store(true)
				loading := f.start(0, get("/", fields...))
				f.awaitRunning(1)
				for i := range 2 {
					f.do(i, call{method: "HEAD", path: "/"}).want(t, 200, "")
				}
				hold.open()
				loading.reply(t).want(t, 200, "all is well")
			})
		})
	}
}

// A HEAD updates the stored response with the header that its client has got. Fields that the
// handler sets after WriteHeader, and trailers, belong to no header.
func TestHeadUpdatesByWhatItHasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gets := 0
		h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=10")
				w.Header().Set("Etag", `"a"`)
				if r.Method == "GET" {
					gets++
					fmt.Fprint(w, "page")
					return
				}
				w.Header().Set("Trailer", "X-Sum")
				w.Header().Set("X-Sent", "1")
				w.WriteHeader(http.StatusOK)
				w.Header().Set("X-Sum", "1")
				w.Header().Set("Cache-Control", "max-age=31536000")
			}))
		asks(h, "GET", "/")
		<-time.After(11 * time.Second)
		asks(h, "HEAD", "/")
		got := asks(h, "GET", "/").Header()
		if gets != 1 || got.Get("X-Sent") != "1" || got.Get("X-Sum") != "" {
			t.Errorf("%d runs for GET, header %v", gets, got)
		}
		<-time.After(11 * time.Second)
		if asks(h, "GET", "/"); gets != 2 {
			t.Errorf("%d runs for GET after the end of max-age", gets)
		}
	})
}

// A HEAD changes no response that was made after the HEAD began.
func TestHeadFromBeforeAPurge(t *testing.T) {
	for name, change := range map[string]func(f *fleet){
		"purged":    func(f *fleet) { f.do(0, call{method: "POST", path: "/"}) },
		"not known": func(f *fleet) {},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 1, middleware.Options{LocalBytes: 1 << 20}, func(
				t *testing.T, f *fleet,
			) {
				hold, began := f.gate(), make(chan bool, 1)
				var version atomic.Value
				version.Store("old")
				f.route("/", func(w http.ResponseWriter, r *http.Request) {
					made := version.Load()
					if r.Method == "HEAD" {
						began <- true
						hold.pass()
					}
					w.Header().Set("Cache-Control", "max-age=60")
					w.Header().Set("X-Version", made.(string))
					fmt.Fprintf(w, "the %s page", made)
				})
				f.do(0, get("/")).want(t, 200, "the old page")
				f.markStale(0, "/")
				head := f.start(0, call{method: "HEAD", path: "/"})
				waittest.Next(t, "the handler of the HEAD runs", began)
				version.Store("new")
				change(f)
				f.do(0, get("/")).want(t, 200, "the new page")
				hold.open()
				if got := head.reply(t); got.header.Get("X-Version") != "old" {
					t.Errorf("HEAD got %v", got.header)
				}
				for range 2 {
					if got := f.do(0, get("/")); got.body != "the new page" ||
						got.header.Get("X-Version") != "new" {
						t.Errorf("got %v, X-Version %s", got, got.header.Get("X-Version"))
					}
				}
			})
		})
	}
}
