package middleware_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A stale variant is refreshed as the same variant, no matter which variant's request began the
// refresh. Each variant keeps its place.
func TestVariantsAreRefreshedAsWhatTheyAre(t *testing.T) {
	for _, field := range []string{"X-Plan", "Accept-Language", "Cookie"} {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache, err := middleware.New(memstore.New(memstore.Options{}), middleware.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer cache.Close()
				var mu sync.Mutex // guards runs
				runs := map[string]int{}
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					runs[r.Header.Get(field)]++
					w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
					w.Header().Set("Vary", field)
					fmt.Fprintf(w, "for %q", r.Header.Get(field))
				}))
				asks := func(value string) {
					t.Helper()
					r := httptest.NewRequest("GET", "/", nil)
					if value != "" {
						r.Header.Set(field, value)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if want := fmt.Sprintf("for %q", value); w.Body.String() != want {
						t.Errorf("got %s; want %s", w.Body, want)
					}
				}
				values := []string{"de", "fr;q=0.500,en;q=0.250", ""}
				for _, value := range values {
					asks(value)
				}
				for round := range 3 {
					<-time.After(15 * time.Second)
					for i := range values { // the request of each variant is the first one in turn
						asks(values[(i+round)%len(values)])
					}
					synctest.Wait()
					for _, value := range values {
						asks(value)
					}
					want := map[string]int{}
					for _, value := range values {
						want[value] = round + 2
					}
					if !maps.Equal(runs, want) {
						t.Errorf("round %d: %v runs; want %v", round, runs, want)
					}
				}
			})
		})
	}
}
