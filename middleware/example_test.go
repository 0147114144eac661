package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	guard "github.com/cacheguard/cacheguard/middleware"
)

// With protects a route. DefaultTTL declares that the route's responses are the same for everybody,
// unless a response says otherwise. Without DefaultTTL and without Cache-Control nothing is shared.
func Example() {
	store := memstore.New(memstore.Options{}) // with Redis: redisstore.New
	defer store.Close()
	runs := 0
	catalog := func(w http.ResponseWriter, r *http.Request) {
		runs++
		fmt.Fprint(w, "all categories")
	}

	pages, err := guard.New(store, guard.Options{DefaultTTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	r := chi.NewRouter()
	r.With(pages.Handler).Get("/catalog", catalog)

	for range 3 {
		see(r, "/catalog")
	}
	fmt.Println("runs:", runs)
	// Output:
	// all categories | cacheguard; fwd=uri-miss; stored
	// all categories | cacheguard; hit
	// all categories | cacheguard; hit
	// runs: 1
}

// If a response depends on more than the URL, name the field in Vary. If it depends on something
// that is no field of the request, return this from VaryBy. In this example it is the group of the
// user, which an authentication in front has put into the context.
func Example_userGroup() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	prices := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		fmt.Fprintf(w, "prices for %s", groupOf(r))
	}

	pages, err := guard.New(store, guard.Options{VaryBy: groupOf})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	r := chi.NewRouter()
	r.With(authenticated, pages.Handler).Get("/prices", prices)

	for _, user := range []string{"ann", "bob", "ben"} {
		see(r, "/prices", "X-User", user)
	}
	// Output:
	// prices for retail | cacheguard; fwd=uri-miss; stored
	// prices for wholesale | cacheguard; fwd=uri-miss; stored
	// prices for wholesale | cacheguard; hit
}

// A successful POST to a URL removes the stored responses of this URL. Other pages that are out of
// date are purged by URL, prefix or tag after the change has been committed.
func Example_purge() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := guard.New(store, guard.Options{DefaultTTL: time.Hour})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	name := "lamp"

	r := chi.NewRouter()
	r.With(pages.Handler).Get("/products/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Tag", "product:"+chi.URLParam(r, "id"))
		fmt.Fprint(w, name)
	})
	r.Post("/products/{id}/name", func(w http.ResponseWriter, r *http.Request) {
		name = "desk lamp" // and commit
		if err := pages.PurgeTags(r.Context(), "product:"+chi.URLParam(r, "id")); err != nil {
			http.Error(w, "old pages may be seen for an hour", http.StatusInternalServerError)
		}
	})

	see(r, "/products/42")
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/products/42/name", nil))
	see(r, "/products/42")
	// Output:
	// lamp | cacheguard; fwd=uri-miss; stored
	// desk lamp | cacheguard; fwd=uri-miss; stored
}

// While the database is down, stored responses are served for up to a day. While a new response is
// made, the old one is served for up to a minute without waiting.
func Example_stale() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	var down atomic.Bool
	report := func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "database is down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "report")
	}

	pages, err := guard.New(store, guard.Options{
		DefaultTTL:           time.Millisecond, // for this example; else minutes
		StaleWhileRevalidate: time.Minute,
		StaleIfError:         24 * time.Hour,
	})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	r := chi.NewRouter()
	r.With(pages.Handler).Get("/report", report)

	see(r, "/report")
	time.Sleep(2 * time.Millisecond) // now it is stale
	down.Store(true)
	see(r, "/report")
	// Output:
	// report | cacheguard; fwd=uri-miss; stored
	// report | cacheguard; hit
}

// see prints a response and its Cache-Status.
func see(h http.Handler, url string, fields ...string) {
	r := httptest.NewRequest("GET", url, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Body)
	how, _, _ := strings.Cut(w.Header().Get("Cache-Status"), "; ttl=")
	fmt.Println(string(body), "|", how)
}

type groupKey struct{}

func groupOf(r *http.Request) string {
	group, _ := r.Context().Value(groupKey{}).(string)
	return group
}

// authenticated stands for a middleware that finds out the user.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group := "retail"
		if r.Header.Get("X-User")[0] == 'b' {
			group = "wholesale"
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), groupKey{}, group)))
	})
}
