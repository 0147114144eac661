package middleware_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

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
