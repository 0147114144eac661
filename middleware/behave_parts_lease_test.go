package middleware_test

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A request for a range doesn't wait for another process that stores a part of the same resource.
func TestRangesWaitForNoOtherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer func() { _ = store.Close() }()
		gate, runs := make(chan struct{}), &atomic.Int32{}
		pieces := inPieces(runs, strong)
		var handlers []http.Handler
		for range 2 {
			cache, err := middleware.New(store,
				middleware.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cache.Close() }()
			handlers = append(handlers,
				cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Range") == "bytes=0-4" {
						<-gate
					}
					pieces(w, r)
				})))
		}
		first := make(chan string)
		go func() { first <- ranged(handlers[0], "0-4") }()
		synctest.Wait()
		began := time.Now()
		if got := ranged(handlers[1], "5-9"); got != "56789" ||
			time.Since(began) > 100*time.Millisecond {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
		close(gate)
		if got := <-first; got != "01234" {
			t.Errorf("got %q", got)
		}
	})
}

// A response to a range request that is no part gives the lease back, so that the next part can be
// stored.
func TestLeaseOfARangeIsGivenBack(t *testing.T) {
	for name, first := range map[string]func(w http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {}, "not found": func(w http.ResponseWriter) {
			w.WriteHeader(404)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				pieces := inPieces(&runs, strong)
				h := newCache(t,
					middleware.Options{}).
					Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if then := first; then != nil {
							first = nil
							then(w)
							return
						}
						pieces(w, r)
					}))
				for range 3 {
					ranged(h, "0-4")
					// The test waits until the lease has been given back. No request waits for
					// this.
					synctest.Wait()
				}
				if runs.Load() != 1 {
					t.Errorf("%d runs", runs.Load())
				}
			})
		})
	}
}
