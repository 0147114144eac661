package middleware_test

import (
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
