package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// If a response is already stale when it comes, its stale windows have already begun.
func TestWindowsOfAResponseThatComesStale(t *testing.T) {
	for name, c := range map[string]struct{ fields, reply string }{
		"stale-while-revalidate": {"max-age=10, stale-while-revalidate=60", "slow"},
		"stale-if-error": {
			"max-age=10, stale-while-revalidate=45, stale-if-error=60", "503",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := newCache(t, middleware.Options{})
				runs := 0
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if runs++; runs > 1 {
						w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					w.Header().Set("Cache-Control", c.fields)
					w.Header().Set("Age", "50")
					_, _ = w.Write([]byte("all is well"))
				}))
				asks(h, "GET", "/")
				<-time.After(15 * time.Second)
				if w := asks(h, "GET", "/"); w.Code != 200 {
					t.Errorf("within the window: got %d", w.Code)
				}
				synctest.Wait()
				// Then the response came 25 seconds ago, and its freshness ended 65 seconds ago.
				<-time.After(10 * time.Second)
				if w := asks(h, "GET", "/"); w.Code != 503 {
					t.Errorf("after the window: got %d, Age %s", w.Code, w.Header().Get("Age"))
				}
			})
		})
	}
}

// The window of the options counts from the end of freshness also for a user who shares the page
// with others, in whichever way the page says how long it is fresh.
func TestWindowForUsersOfAPageForAll(t *testing.T) {
	for _, name := range []string{"Expires", "Cache-Control"} {
		synctest.Test(t, func(t *testing.T) {
			cache := newCache(t, middleware.Options{StaleWhileRevalidate: time.Minute})
			runs := 0
			h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				value := map[string]string{
					"Expires":       time.Now().Add(10 * time.Second).UTC().Format(http.TimeFormat),
					"Cache-Control": "public, max-age=10",
				}
				w.Header().Set(name, value[name])
				fmt.Fprintf(w, "run %d", runs)
			}))
			asks(h, "GET", "/")
			<-time.After(15 * time.Second)
			if got := asks(h, "GET", "/", "Cookie", "session=1").Body.String(); got != "run 1" {
				t.Errorf("%s: within the window: %s", name, got)
			}
			synctest.Wait()
			if runs != 2 {
				t.Errorf("%s: %d runs, want one refresh", name, runs)
			}
		})
	}
}

// windows are the ways in which a response with a lifetime of a second can be served stale.
var windows = map[string]string{
	"while revalidating":   "max-age=1, stale-while-revalidate=600",
	"if there is an error": "max-age=1, stale-if-error=600",
}

// versions is a page whose version is the second in which it is made. For requests with X-Bad its
// handler fails.
type versions struct {
	began  time.Time
	window string
	down   bool
	runs   int
}

func (v *versions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.runs++
	switch bad := r.Header.Get("X-Bad"); {
	case bad == "panic":
		panic(http.ErrAbortHandler)
	case v.down || bad != "":
		http.Error(w, "failed", http.StatusInternalServerError)
	default:
		w.Header().Set("Cache-Control", v.window)
		fmt.Fprint(w, int(time.Since(v.began).Seconds()))
	}
}

// twoProcesses returns a page behind two caches on one store.
func twoProcesses(t *testing.T, v *versions) [2]http.Handler {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	var all [2]http.Handler
	for i := range all {
		cache, err := middleware.New(store, middleware.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cache.Close() })
		all[i] = cache.Handler(v)
	}
	return all
}

// fails sends a request on which the handler fails, from one of two clients. The client may see a
// panic.
func fails(h http.Handler, how string, loggedIn bool) {
	defer func() { _ = recover() }()
	header := []string{"X-Bad", how}
	if loggedIn {
		header = append(header, "Cookie", "session=bob")
	}
	asks(h, "GET", "/", header...)
}

// stalePage returns a page that has just become stale, in two processes.
func stalePage(t *testing.T, window string) (*versions, [2]http.Handler) {
	t.Helper()
	v := &versions{began: time.Now(), window: window}
	all := twoProcesses(t, v)
	asks(all[0], "GET", "/")
	<-time.After(5 * time.Second)
	return v, all
}

// One request on which the handler fails doesn't keep the old version for other clients for longer
// than a second.
func TestOneFailureKeepsNoOldVersion(t *testing.T) {
	for name, window := range windows {
		for _, how := range []string{"500", "panic"} {
			for _, loggedIn := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, logged in %v", name, how, loggedIn), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						_, all := stalePage(t, window)
						fails(all[0], how, loggedIn)
						synctest.Wait()
						<-time.After(time.Second)
						for _, h := range all { // the first requests may begin the refresh
							asks(h, "GET", "/")
							synctest.Wait()
						}
						for i, h := range all {
							if got := asks(h, "GET", "/").Body.String(); got == "0" {
								t.Errorf("process %d still has the old version a second after the failure",
									i)
							}
						}
					})
				})
			}
		}
	}
}

// A client that sends as many failing requests as all other clients send requests delays the new
// version, but can't prevent it.
func TestFailuresWithoutEndKeepNoOldVersion(t *testing.T) {
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, all := stalePage(t, window)
				// In this time there are at least 20 tries, half of them by the other clients.
				const most = 40 * time.Second
				begun := time.Now()
				for i := 0; ; i++ {
					fails(all[i%2], "500", i/2%2 > 0)
					synctest.Wait()
					<-time.After(50 * time.Millisecond)
					if got := strings.TrimSpace(asks(all[i/2%2], "GET",
						"/").Body.String()); got != "0" {
						t.Logf("the new version came after %v", time.Since(begun))
						return
					}
					synctest.Wait()
					<-time.After(50 * time.Millisecond)
					if time.Since(begun) > most {
						t.Fatalf("the old version is still there after %v", most)
					}
				}
			})
		})
	}
}

// If an origin fails for all requests, the whole fleet sends it about one request a second for each
// page.
func TestFailingOriginIsLeftAlone(t *testing.T) {
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, all := stalePage(t, window)
				v.down, v.runs = true, 0
				for i := range 6000 { // a minute
					if got := asks(all[i%2], "GET", "/"); got.Code != 200 ||
						got.Body.String() != "0" {
						t.Fatalf("got %d %q", got.Code, got.Body)
					}
					synctest.Wait()
					<-time.After(10 * time.Millisecond)
				}
				t.Logf("%d tries in a minute", v.runs)
				if v.runs < 30 || v.runs > 60 {
					t.Errorf("the handler ran %d times in a minute; want 30 to 60", v.runs)
				}
			})
		})
	}
}
