package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// A layer in front of the cache may have found out which user a request is from. A refresh that one
// user's request begins never makes a response that another user gets, whoever says that the
// response is for one user: the handler, or the layer in front, which sets Vary.
func TestRefreshForOneUserIsNotAnothersResponse(t *testing.T) {
	for _, says := range []string{"handler", "layer in front"} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { refreshesFor(t, says) })
		})
	}
}

// A layer in front may give some clients a cookie. A refresh for such a client in the background
// would be for nobody, so there is none, and others can refresh the response.
func TestRefreshForAClientThatGetsACookie(t *testing.T) {
	for name, value := range map[string]string{
		"Set-Cookie": "session=1", "Cache-Control": "private",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				h := inFront(newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
					w http.ResponseWriter, r *http.Request,
				) {
					runs++
					w.Header().Add("Cache-Control", "max-age=10, stale-while-revalidate=60")
					fmt.Fprint(w, "page ", runs)
				})), func(r *http.Request, h http.Header) {
					if r.Header.Get("X-New") != "" {
						h.Set(name, value)
					}
				})
				get := func(want string, fields ...string) {
					t.Helper()
					if got := asks(h, "GET", "/", fields...).Body.String(); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
					synctest.Wait()
				}
				get("page 1")
				<-time.After(15 * time.Second)
				get("page 1", "X-New", "yes")
				get("page 1", "X-New", "yes")
				get("page 1")
				get("page 2")
			})
		})
	}
}

func refreshesFor(t *testing.T, says string) {
	cache := newCache(t, middleware.Options{})
	type user struct{}
	routes := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
		if says == "handler" {
			w.Header().Set("Vary", "Cookie")
		}
		fmt.Fprintf(w, "the orders of %v", r.Context().Value(user{}))
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // a session middleware
		if says != "handler" {
			w.Header().Set("Vary", "Cookie")
		}
		routes.ServeHTTP(w,
			r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("Cookie"))))
	})
	get := func(cookie string) {
		t.Helper()
		if got, want := asks(h, "GET", "/orders", "Cookie", cookie).Body.String(),
			"the orders of "+cookie; got != want {
			t.Errorf("%s got %q", cookie, got)
		}
	}
	get("alice")
	get("bob")
	for range 3 {
		<-time.After(15 * time.Second)
		get("bob")
		synctest.Wait()
		get("alice")
		synctest.Wait()
		get("alice")
		get("bob")
	}
}
