package middleware_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/middleware"
)

// If the handler fails because of one client's request, no other client gets the error. The
// requests that waited have one more run together.
func TestStrangersHandOutNoErrors(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter){
		"500":   func(w http.ResponseWriter) { w.WriteHeader(500) },
		"503":   func(w http.ResponseWriter) { http.Error(w, "no", http.StatusServiceUnavailable) },
		"panic": func(http.ResponseWriter) { panic("bad") },
		"abort": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"too few": func(w http.ResponseWriter) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Length", "9")
		},
	} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, always), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cache := newCache(t, middleware.Options{MaxLoads: 1})
					hold := make(chan struct{})
					var runs atomic.Int32
					h := cache.Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						runs.Add(1)
						<-hold
						w.Header().Set("Cache-Control", "max-age=60")
						if always || r.Header.Get("X-Bad") != "" {
							w.Header().Del("Cache-Control")
							fail(w)
							return
						}
						fmt.Fprint(w, "page")
					}))
					var all sync.WaitGroup
					ask := func(then func(code int, body string), header ...string) {
						all.Go(func() {
							defer func() { _ = recover() }() // the handler's own client
							w := asks(h, "GET", "/", header...)
							then(w.Code, w.Body.String())
						})
					}
					ask(func(int, string) {}, "X-Bad", "yes")
					synctest.Wait()
					var good, bad atomic.Int32
					for range 1000 {
						ask(func(code int, body string) {
							if code == 200 && body == "page" {
								good.Add(1)
							} else if code >= 500 {
								bad.Add(1)
							}
						})
					}
					synctest.Wait()
					close(hold)
					all.Wait()
					switch {
					case runs.Load() != 2:
						t.Errorf("%d runs", runs.Load())
					case always && (good.Load() > 0 || bad.Load() < 999):
						t.Errorf("%d got a page, %d an error", good.Load(), bad.Load())
					case !always && good.Load() != 1000:
						t.Errorf("%d of 1000 got the page", good.Load())
					}
				})
			})
		}
	}
}
