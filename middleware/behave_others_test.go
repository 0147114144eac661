package middleware_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/middleware"
)

// Who waits for a handler that has begun to send what is for others, by Vary, doesn't wait for its end. Those of one variant
// have one run among them.
func TestNobodyWaitsForAnothersVariant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, end, runs := make(chan string, 10), map[string]chan struct{}{"bob": make(chan struct{}), "alice": make(chan struct{})}, map[string]int{}
		h := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user := r.Header.Get("Cookie")
			began <- user
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Vary", "Cookie")
			_ = http.NewResponseController(w).Flush()
			<-end[user]
			fmt.Fprintf(w, "the page of %s", user)
		}))
		got := map[string]chan string{"bob": make(chan string, 2), "alice": make(chan string, 2)}
		get := func(user string) {
			go func() { got[user] <- asks(h, "GET", "/orders", "Cookie", user).Body.String() }()
			synctest.Wait()
		}
		get("bob")
		get("bob")
		get("alice")
		get("alice")
		for range len(began) {
			runs[<-began]++
		}
		if runs["bob"] != 1 || runs["alice"] != 1 {
			t.Errorf("begun while bob's handler runs: %v; want one for each", runs)
		}
		for _, user := range []string{"alice", "bob"} {
			close(end[user])
			for range 2 {
				if page := <-got[user]; page != "the page of "+user {
					t.Errorf("%s got %q", user, page)
				}
			}
		}
	})
}
