package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/middleware"
)

// Behind http.TimeoutHandler a request can be over while it still waits for its turn. Then its chi
// route context may belong to another request. A handler that runs for other clients in its place
// sees the parameters with which the request came.
func TestRouteOfARequestThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{MaxLoads: 1})
		first := make(chan struct{})
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				<-first
			}
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprintf(w, "product %s", chi.URLParam(r, "id"))
		}))
		serve := func(ctx context.Context, path string, route *chi.Context) chan string {
			body := make(chan string, 1)
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w,
					httptest.NewRequest("GET", path,
						nil).WithContext(context.WithValue(ctx, chi.RouteCtxKey, route)))
				body <- w.Body.String()
			}()
			synctest.Wait()
			return body
		}
		route := func(id string) *chi.Context {
			r := chi.NewRouteContext()
			r.URLParams.Add("id", id)
			return r
		}
		serve(t.Context(), "/first", route("0"))
		ctx, leave := context.WithCancel(t.Context())
		recycled := route("1")
		serve(ctx, "/products/1", recycled)
		waits := serve(t.Context(), "/products/1", route("1"))
		recycled.Reset()
		recycled.URLParams.Add("id", "2")
		leave()
		synctest.Wait()
		close(first)
		for _, body := range []chan string{waits, serve(t.Context(), "/products/1", route("1"))} {
			select {
			case got := <-body:
				if got != "product 1" {
					t.Errorf("got %q for product 1", got)
				}
			case <-time.After(time.Minute):
				t.Error("no response")
			}
		}
	})
}
