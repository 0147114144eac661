package middleware_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// brokenHandler panics. The test looks for its name in the stack of the panic.
func brokenHandler(w http.ResponseWriter, written string) {
	if written != "" { // writing nothing would send the header
		fmt.Fprint(w, written)
	}
	panic(fmt.Errorf("the handler has broken down after %d bytes", len(written)))
}

// A handler panics while other requests wait for it. Its own client sees the same as without the
// cache: chi's Recoverer recovers the handler's value on the handler's stack and answers 500. One
// of the waiting requests runs the handler again, for all of them.
func TestFleetPanic(t *testing.T) {
	for name, written := range map[string]string{
		"before it writes": "", "in the middle of the body": "half of",
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{DefaultTTL: time.Minute}, func(
				t *testing.T, f *fleet,
			) {
				hold := f.gate()
				f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
					if run, _, _ := f.counts(); run == 1 {
						hold.pass()
						brokenHandler(w, written)
					}
					page(w, "all categories")
				})
				leader := f.start(0, get("/catalog"))
				f.awaitRunning(1)
				clients := f.startAll(6, func(int) call { return get("/catalog") })
				f.awaitWaiting(7)
				hold.open()
				if got := leader.reply(t); written == "" {
					got.want(t, 500, "")
				} else if got.body != written {
					t.Errorf("the panicked handler's own client gets %v", got)
				}
				for _, cl := range clients {
					cl.reply(t).want(t, 200, "all categories")
				}
				f.wantRuns(2, "seven requests")
				for i, rep := range f.replicas {
					values, stacks := rep.panics.all()
					if i == 1 {
						if len(values) != 0 {
							t.Errorf("a replica whose handler did not panic recovers %q", values)
						}
						continue
					}
					if len(values) != 1 ||
						fmt.Sprint(values[0]) !=
							fmt.Sprintf("the handler has broken down after %d bytes",
								len(written)) {
						t.Fatalf("chi's Recoverer recovers %q", values)
					}
					if _, ok := values[0].(error); !ok {
						t.Errorf("the recovered value is a %T", values[0])
					}
					if !strings.Contains(stacks[0], "middleware_test.brokenHandler") {
						t.Errorf("the recovered stack is not the handler's:\n%s", stacks[0])
					}
				}
				for i := range f.replicas {
					f.do(i, get("/catalog")).want(t, 200, "all categories")
				}
				f.wantRuns(2, "and two later")
			})
		})
	}
}

// If a request comes while others have their second try, it gets the result of this try, in each
// process, even if the result is an error.
func TestFleetSecondTryIsTheLast(t *testing.T) {
	onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
		holds := []*gate{f.gate(), f.gate()}
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			run, _, _ := f.counts()
			holds[min(run, 2)-1].pass()
			http.Error(w, "no", http.StatusServiceUnavailable)
		})
		first := f.start(0, get("/catalog"))
		f.awaitRunning(1)
		second := f.start(0, get("/catalog"))
		f.awaitWaiting(2)
		holds[0].open()
		first.reply(t).want(t, 503, "no\n")
		f.awaitRuns(2)
		third := f.start(1, get("/catalog"))
		f.awaitWaiting(2)
		holds[1].open()
		second.reply(t).want(t, 503, "no\n")
		third.reply(t).want(t, 503, "Service Unavailable\n")
		f.wantRuns(2, "three requests")
	})
}

// Responses that end too early are neither stored nor given to the requests that wait. One of these
// requests runs the handler again.
func TestFleetNotWhole(t *testing.T) {
	for name, broken := range map[string]func(w http.ResponseWriter){
		"aborted at once": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"aborted in the middle": func(w http.ResponseWriter) {
			fmt.Fprint(w, "half of")
			panic(http.ErrAbortHandler)
		},
		"ended by Goexit": func(http.ResponseWriter) { runtime.Goexit() },
		"shorter than Content-Length": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half of")
		},
		"nothing of Content-Length": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(200)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, 2, middleware.Options{}, func(t *testing.T, f *fleet) {
				hold := f.gate()
				f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
					if run, _, _ := f.counts(); run == 1 {
						hold.pass()
						w.Header().Set("Cache-Control", "max-age=60")
						broken(w)
						return
					}
					page(w, "all categories")
				})
				leader := f.start(0, get("/catalog"))
				f.awaitRunning(1)
				clients := f.startAll(6, func(int) call { return get("/catalog") })
				f.awaitWaiting(7)
				hold.open()
				if got := leader.reply(t); got.err == nil {
					t.Errorf("the client whose response is broken gets %v as if it were whole", got)
				}
				for _, cl := range clients {
					cl.reply(t).want(t, 200, "all categories")
				}
				f.wantRuns(2, "seven requests")
				for i := range f.replicas {
					f.do(i, get("/catalog")).want(t, 200, "all categories")
				}
				f.wantRuns(2, "and two later")
			})
		})
	}
}

// Bytes beyond Content-Length are not part of the response, for any client.
func TestFleetLongerThanContentLength(t *testing.T) {
	f := memoryFleet(t, 2, middleware.Options{})
	f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "all")
		if _, err := fmt.Fprint(w, " categories"); err != http.ErrContentLength {
			t.Errorf("writing beyond Content-Length: %v", err)
		}
	})
	for i := range 4 {
		f.do(i%2, get("/catalog")).want(t, 200, "all")
	}
}

// If the cache has no response, Options.Error can answer with an error of its own.
func TestFleetErrorOption(t *testing.T) {
	opts := middleware.Options{Error: func(
		w http.ResponseWriter, r *http.Request, status int, err error,
	) {
		if err == nil {
			t.Error("no error")
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"path":%q}`, status, r.URL.Path)
	}}
	onEachStore(t, 2, opts, func(t *testing.T, f *fleet) {
		hold := f.gate()
		f.route("/catalog", func(w http.ResponseWriter, r *http.Request) {
			hold.pass()
			panic("broken down")
		})
		leader := f.start(0, get("/catalog"))
		f.awaitRunning(1)
		clients := f.startAll(4, func(int) call { return get("/catalog") })
		f.awaitWaiting(5)
		hold.open()
		leader.reply(t).want(t, 500, "")
		own := 1
		for _, cl := range clients {
			got := cl.reply(t)
			if got.body == "" { // this request had the second run
				own++
				got.want(t, 500, "")
				continue
			}
			got.want(t, 500, `{"status":500,"path":"/catalog"}`)
			if got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("Content-Type is %q", got.header.Get("Content-Type"))
			}
		}
		if runs := f.wantFailures(2, "five requests"); own != runs {
			t.Errorf("%d clients saw the panic of %d runs", own, runs)
		}
	})
}
