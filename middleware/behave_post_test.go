package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/middleware"
)

// A POST whose response is for GET is recorded as it comes, whole or not at all, and only so many at a time.
func TestPostsAreRecordedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := newCache(t, middleware.Options{StorePosts: true})
		gate := make(chan struct{})
		answer := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, strings.NewReader(digits)) }
		h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Content-Location", r.URL.Path)
			if r.Method == "GET" {
				fmt.Fprint(w, "by GET")
				return
			}
			if r.URL.Path == "/slow" {
				<-gate
			}
			answer(w, r)
		}))
		expect := func(target, want string) {
			t.Helper()
			if got := asks(h, "GET", target).Body.String(); got != want {
				t.Errorf("%s: %q", target, got)
			}
		}
		asks(h, "POST", "/copied")
		expect("/copied", digits)
		answer = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "012")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "345")
		}
		asks(h, "POST", "/flushed")
		expect("/flushed", "012345")
		answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "012")
		}
		asks(h, "POST", "/short")
		expect("/short", "by GET")
		answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "012"); panic(http.ErrAbortHandler) }
		func() {
			defer func() { _ = recover() }()
			asks(h, "POST", "/panic")
		}()
		expect("/panic", "by GET")

		answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, digits) }
		done := make(chan bool)
		for range 16 {
			go func() { asks(h, "POST", "/slow"); done <- true }()
		}
		synctest.Wait()
		asks(h, "POST", "/seventeenth")
		expect("/seventeenth", "by GET")
		close(gate)
		for range 16 {
			<-done
		}
		asks(h, "POST", "/later")
		expect("/later", digits)
	})
}
