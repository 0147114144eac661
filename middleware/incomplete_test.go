package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// A handler whose context ends returns after a part of the page. Without a Content-Length nobody
// can see that it is only a part. It is given to nobody else, no matter who has ended the run.
func TestHalfAPageIsNotStored(t *testing.T) {
	const pages = 20
	const wholePage = "half whole"
	const stale = "max-age=10, stale-while-revalidate=60"
	synctested := func(
		name, control string, opts middleware.Options,
		test func(t *testing.T, cache *middleware.Cache, h http.Handler, slow *atomic.Bool),
	) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				defer store.Close()
				var slow atomic.Bool
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", control)
					w.Header().Set("Content-Location", r.URL.Path)
					_, _ = w.Write([]byte("half "))
					if slow.Load() {
						<-r.Context().Done()
						return
					}
					_, _ = w.Write([]byte("whole"))
				})
				var all [2]*middleware.Cache
				for i := range all {
					var err error
					if all[i], err = middleware.New(store, opts); err != nil {
						t.Fatal(err)
					}
					defer all[i].Close()
				}
				test(t, all[0], all[0].Handler(handler), &slow)
				synctest.Wait()
				slow.Store(false)
				others := all[1].Handler(handler)
				for i := range pages {
					if got := asks(others, "GET",
						fmt.Sprint("/", i)).Body.String(); got != wholePage {
						t.Errorf("/%d: another process got %q", i, got)
					}
				}
			})
		})
	}
	short := middleware.Options{LoadTimeout: time.Second}
	refreshing := func(
		end func(cache *middleware.Cache),
	) func(*testing.T, *middleware.Cache, http.Handler, *atomic.Bool) {
		return func(t *testing.T, cache *middleware.Cache, h http.Handler, slow *atomic.Bool) {
			for i := range pages {
				asks(h, "GET", fmt.Sprint("/", i))
			}
			<-time.After(15 * time.Second)
			slow.Store(true)
			for i := range pages {
				if got := asks(h, "GET", fmt.Sprint("/", i)).Body.String(); got != wholePage {
					t.Errorf("/%d: got %q while it is refreshed", i, got)
				}
			}
			synctest.Wait()
			end(cache)
		}
	}
	synctested("refresh that takes too long", stale, short,
		refreshing(func(*middleware.Cache) { <-time.After(2 * time.Second) }))
	synctested("refresh when the cache is closed", stale, middleware.Options{},
		refreshing(func(cache *middleware.Cache) { _ = cache.Close() }))

	// leaving begins runs for clients that leave after this time. The layer "front", which is in
	// front of the cache, may end the runs, too.
	leavingBy := func(
		method string, after time.Duration, front func(http.Handler) http.Handler,
	) func(*testing.T, *middleware.Cache, http.Handler, *atomic.Bool) {
		return func(t *testing.T, cache *middleware.Cache, h http.Handler, slow *atomic.Bool) {
			h = front(h)
			slow.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			for i := range pages {
				r := httptest.NewRequestWithContext(ctx, method, fmt.Sprint("/", i), nil)
				go h.ServeHTTP(httptest.NewRecorder(), r)
			}
			<-time.After(10 * time.Second)
		}
	}
	leaving := func(
		after time.Duration, front func(http.Handler) http.Handler,
	) func(*testing.T, *middleware.Cache, http.Handler, *atomic.Bool) {
		return leavingBy("GET", after, front)
	}
	as := func(h http.Handler) http.Handler { return h }
	synctested("client that leaves", "max-age=60", middleware.Options{}, leaving(5*time.Second, as))
	synctested("client that leaves after LoadTimeout", "max-age=60", short,
		leaving(5*time.Second, as))
	synctested("client that leaves at LoadTimeout", "max-age=60", short, leaving(time.Second, as))
	routed := func(h http.Handler) http.Handler {
		r := chi.NewRouter()
		r.Use(chimiddleware.Timeout(time.Second))
		r.Handle("/*", h)
		return r
	}
	synctested("time-out in front", "max-age=60", middleware.Options{}, leaving(time.Hour, routed))
	timed := func(h http.Handler) http.Handler {
		return http.TimeoutHandler(h, time.Second, "too slow")
	}
	synctested("TimeoutHandler in front", "max-age=60", middleware.Options{},
		leaving(time.Hour, timed))

	posts := middleware.Options{StorePosts: true}
	synctested("POST of a client that leaves", "max-age=60", posts,
		leavingBy("POST", 5*time.Second, as))
	synctested("POST, time-out in front", "max-age=60", posts,
		leavingBy("POST", time.Hour, routed))
	synctested("POST, TimeoutHandler in front", "max-age=60", posts,
		leavingBy("POST", time.Hour, timed))
}

// A time-out in front of the cache may end a request that reads a response while it is made,
// although its client is still there. Then the connection must be aborted. Otherwise the client
// would take the part for the whole response.
func TestTimeOutOfAReaderIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{})
		hold := make(chan struct{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = w.Write([]byte("half "))
			_ = http.NewResponseController(w).Flush()
			<-hold
			_, _ = w.Write([]byte("whole"))
		}))
		leader := make(chan string)
		go func() { leader <- asks(h, "GET", "/").Body.String() }()
		synctest.Wait()
		func() {
			defer func() {
				if v := recover(); v != http.ErrAbortHandler {
					t.Errorf("ended with %v", v)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			h.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		}()
		close(hold)
		if got := <-leader; got != "half whole" {
			t.Errorf("got %q", got)
		}
	})
}
