package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/middleware"
)

const shop = "http://shop.example"

// markStale makes the fleet's responses at a path stale.
func (f *fleet) markStale(i int, path string) {
	f.tb.Helper()
	f.everywhere(func() error {
		return f.replicas[i].cache.MarkStale(context.Background(), shop+path)
	})
}

// A stale response is served at once, while the handler runs in the background on one replica. This
// run has a request of its own. chi reuses the route context of the first request for other
// requests, but the run's route context still has the right parameters. The run's context doesn't
// end with the request that began it.
func TestFleetRevalidatesInTheBackground(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		hold, version := f.gate(), "old"
		type seen struct {
			id, pattern, path, user string
			err                     error
		}
		behind := make(chan seen, 10)
		f.route("/products/{id}/{part}", func(w http.ResponseWriter, r *http.Request) {
			made := version
			if made == "new" {
				hold.pass()
				behind <- seen{
					chi.URLParam(r, "id"), chi.RouteContext(r.Context()).RoutePattern(), r.URL.Path,
					r.Header.Get("X-User"), r.Context().Err(),
				}
				if body := readAll(t, r.Body); body != "" {
					t.Errorf("the body of a request in the background is %q", body)
				}
			}
			w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=600")
			fmt.Fprintf(w, "%s %s of product %s", made, chi.URLParam(r, "part"),
				chi.URLParam(r, "id"))
		})
		f.route("/other/{id}/{part}", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
		})

		f.do(0, get("/products/42/price")).want(t, 200, "old price of product 42")
		version = "new"
		f.markStale(1, "/products/42/price")
		f.fresh()
		for i := range 8 {
			got := f.do(i%2, get("/products/42/price", "X-User", fmt.Sprint(i)))
			got.want(t, 200, "old price of product 42")
			if status := got.header.Get("Cache-Status"); !strings.Contains(status, "; hit") ||
				!strings.Contains(status, "ttl=-") {
				t.Errorf("Cache-Status of a stale response is %q", status)
			}
		}
		f.awaitRunning(1)
		f.wantRuns(1, "eight requests for a stale response")
		// These requests reuse the route context of the request that began the run, if it is free.
		for i := range 50 {
			f.do(i%2, get(fmt.Sprintf("/other/%d/x", i)))
		}
		hold.open()
		if got := waittest.Next(t, "the handler runs", behind); got.id != "42" ||
			got.pattern != "/products/{id}/{part}" || got.path != "/products/42/price" ||
			got.err != nil {
			t.Errorf("the handler in the background sees %+v", got)
		}
		f.await("the new response is there", func() bool {
			return f.do(1, get("/products/42/price")).body == "new price of product 42"
		})
		f.do(0, get("/products/42/price")).want(t, 200, "new price of product 42")
	})
}

// A request that gets a stale response always begins a run, no matter whether the request or the
// run ends first.
func TestFleetEachStaleResponseIsRevalidated(t *testing.T) {
	onEachStore(t, 2, middleware.Options{MaxLoads: -1}, func(t *testing.T, f *fleet) {
		const pages = 100
		f.route("/pages/{n}", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=600")
			fmt.Fprint(w, "page "+chi.URLParam(r, "n"))
		})
		var urls []string
		for n := range pages {
			f.do(n%2, get(fmt.Sprintf("/pages/%d", n))).want(t, 200, fmt.Sprintf("page %d", n))
			urls = append(urls, fmt.Sprintf("%s/pages/%d", shop, n))
		}
		f.everywhere(func() error { return f.replicas[0].cache.MarkStale(t.Context(), urls...) })
		f.fresh()
		for n := range pages {
			f.do(n%2, get(fmt.Sprintf("/pages/%d", n))).want(t, 200, fmt.Sprintf("page %d", n))
		}
		f.await("the handler runs once for each stale page", func() bool {
			runs, running, _ := f.counts()
			return runs == pages && running == 0
		})
	})
}

// If a handler panics in the background, the process goes on, and the resource can still be
// requested.
func TestFleetPanicInTheBackground(t *testing.T) {
	for name, how := range map[string]func(){
		"panic": func() { panic("broken down") },
		"abort": func() { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				f.route("/list", func(w http.ResponseWriter, r *http.Request) {
					if run, _, _ := f.counts(); run > 1 {
						how()
					}
					w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=600")
					fmt.Fprint(w, "the list")
				})
				f.do(0, get("/list")).want(t, 200, "the list")
				f.markStale(0, "/list")
				f.do(1, get("/list")).want(t, 200, "the list")
				f.await("the handler has run in the background", func() bool {
					runs, running, _ := f.counts()
					return runs >= 2 && running == 0
				})
				for i := range f.replicas {
					f.do(i, get("/list")).want(t, 200, "the list")
				}
			})
		})
	}
}

// In the background the handler's writer has no client and no connection that the handler could
// take over.
func TestFleetWriterInTheBackground(t *testing.T) {
	f := memoryFleet(t, 1, middleware.Options{})
	ran := make(chan error, 1)
	f.route("/list", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=600")
		if run, _, _ := f.counts(); run == 1 {
			fmt.Fprint(w, "the old list")
			return
		}
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		c := http.NewResponseController(w)
		// There is no connection that it could be of.
		_ = c.SetWriteDeadline(time.Now().Add(-time.Second))
		conn, _, err := c.Hijack()
		if err == nil {
			_ = conn.Close()
		}
		ran <- err
		fmt.Fprint(w, "the new list")
		_ = c.Flush()
	})
	f.do(0, get("/list")).want(t, 200, "the old list")
	f.markStale(0, "/list")
	if got := f.do(0, get("/list")); got.body != "the old list" || len(got.hints) > 0 {
		t.Errorf("one that doesn't wait for the new list gets %v, told early of %q", got, got.hints)
	}
	if err := waittest.Next(t, "the handler runs", ran); err == nil {
		t.Error("a handler without a client takes its connection over")
	}
	f.await("the new list is there", func() bool {
		return f.do(0, get("/list")).body == "the new list"
	})
	f.wantRuns(2, "one in the background")
}

// If the handler fails, new and waiting requests get the stale response within stale-if-error. A
// client error isn't hidden: a 404 replaces the stored response.
func TestFleetStaleIfError(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504, 404} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				hold, down := f.gate(), false
				f.route("/list", func(w http.ResponseWriter, r *http.Request) {
					if down {
						hold.pass()
						w.WriteHeader(status)
						fmt.Fprint(w, "failed")
						return
					}
					w.Header().Set("Cache-Control", "max-age=60, stale-if-error=600")
					fmt.Fprint(w, "the list")
				})
				f.do(0, get("/list")).want(t, 200, "the list")
				down = true
				f.markStale(1, "/list")
				f.fresh()
				clients := f.startAll(6, func(int) call { return get("/list") })
				f.awaitWaiting(6)
				f.wantRuns(1, "six requests for a stale response")
				hold.open()
				for _, cl := range clients {
					got := cl.reply(t)
					if status == 404 {
						got.wantStatus(t, 404)
						continue
					}
					got.want(t, 200, "the list")
					if line := got.header.Get("Cache-Status"); !strings.Contains(line, "ttl=-") {
						t.Errorf("Cache-Status of a stale response is %q", line)
					}
				}
			})
		})
	}
}

// If there is a stale response, a panic of the handler is a failure for the requests that wait:
// they get the stale response.
func TestFleetStaleIfPanic(t *testing.T) {
	onEachStore(t, 2, middleware.Options{StaleIfError: time.Hour}, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/list", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-First") == "" {
				hold.pass()
				brokenHandler(w, "")
			}
			page(w, "the list")
		})
		f.do(0, get("/list", "X-First", "yes")).want(t, 200, "the list")
		f.markStale(1, "/list")
		f.fresh()
		leader := f.start(0, get("/list"))
		f.awaitRunning(1)
		clients := f.startAll(4, func(int) call { return get("/list") })
		f.awaitWaiting(5)
		hold.open()
		leader.reply(t).wantStatus(t, 500) // its panic belongs to the Recoverer
		for _, cl := range clients {
			cl.reply(t).want(t, 200, "the list")
		}
		f.wantRuns(1, "five requests")
	})
}

// The handler gets the validators of the stored response. Its 304 makes this response fresh for the
// whole fleet.
func TestFleetNotModified(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		var whole int
		f.route("/list", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("X-Run", fmt.Sprint(f.stage))
			if r.Header.Get("If-None-Match") == `"v1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			whole++
			fmt.Fprint(w, "the list")
		})
		f.do(0, get("/list")).want(t, 200, "the list")
		f.markStale(0, "/list")
		f.fresh()
		f.do(1, get("/list")).want(t, 200, "the list")
		f.wantRuns(1, "one request for a stale response")
		for i := range 4 {
			f.do(i%2, get("/list")).want(t, 200, "the list")
			f.do(i%2, get("/list", "If-None-Match", `"v1"`)).want(t, 304, "")
		}
		f.wantRuns(1, "and eight for a fresh one")
		if whole != 1 {
			t.Errorf("the handler has made the list %d times", whole)
		}
	})
}
