package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	guard "github.com/cacheguard/cacheguard/middleware"
)

// Visitors of a public site have cookies for analytics and for a session. The page is the same for
// all of them and says so. The parts that belong to the session have a route of their own, without
// a cache.
func Example_publicSite() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	home := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, "home")
	}
	basket := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "your basket") }

	pages, err := guard.New(store, guard.Options{
		StaleWhileRevalidate: time.Minute,
		IgnoreCookies:        []string{"_ga*", "consent"},
		IgnoreQuery:          []string{"utm_*", "fbclid"},
	})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	r := chi.NewRouter()
	r.With(pages.Handler).Get("/", home)
	r.Get("/basket", basket)

	see(r, "/?utm_source=mail", "Cookie", "_ga=GA1.1.5; session=ann")
	see(r, "/?utm_source=news", "Cookie", "_ga=GA1.1.6; session=bob")
	// Output:
	// home | cacheguard; fwd=uri-miss; stored
	// home | cacheguard; hit
}

// The clients of an API have bearer tokens. One resource is the same for all clients that may see
// it, another one differs by client. The middleware that checks tokens is in front of the cache, so
// that hits are checked, too.
func Example_bearerTokens() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	products := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, "products")
	}
	orders := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=10")
		w.Header().Set("Vary", "Authorization")
		fmt.Fprint(w, "orders of ", r.Header.Get("Authorization"))
	}

	api, err := guard.New(store, guard.Options{Name: "api"})
	if err != nil {
		panic(err)
	}
	defer api.Close()
	r := chi.NewRouter()
	r.Use(onlyWithToken, api.Handler)
	r.Get("/products", products)
	r.Get("/orders", orders)

	for _, path := range []string{"/products", "/orders"} {
		for _, token := range []string{"Bearer ann", "Bearer bob", "Bearer bob"} {
			see(r, path, "Authorization", token)
		}
	}
	// Output:
	// products | cacheguard; fwd=uri-miss; stored
	// products | cacheguard; hit
	// products | cacheguard; hit
	// orders of Bearer ann | cacheguard; fwd=uri-miss; stored
	// orders of Bearer bob | cacheguard; fwd=vary-miss; stored
	// orders of Bearer bob | cacheguard; hit
}

// onlyWithToken stands for a middleware that checks tokens.
func onlyWithToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A page in two languages. The handler names the field, and Shape reduces it to what the handler
// tells apart.
func Example_languages() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	language := func(r *http.Request) string {
		if strings.HasPrefix(r.Header.Get("Accept-Language"), "de") {
			return "de"
		}
		return "en"
	}
	pages, err := guard.New(store, guard.Options{
		DefaultTTL: time.Minute,
		// "de" or "en"
		Shape: func(r *http.Request) { r.Header.Set("Accept-Language", language(r)) },
	})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	page := pages.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept-Language")
		fmt.Fprint(w, "welcome in ", language(r))
	}))
	for _, accepts := range []string{"de-AT,de;q=0.9", "de", "en-GB", "fr"} {
		see(page, "/", "Accept-Language", accepts)
	}
	// Output:
	// welcome in de | cacheguard; fwd=uri-miss; stored
	// welcome in de | cacheguard; hit
	// welcome in en | cacheguard; fwd=vary-miss; stored
	// welcome in en | cacheguard; hit
}

// If tenants have hosts of their own, nothing is needed, because the host is in the key. If a
// tenant is found in another way, in this example by a field that a gateway sets, VaryBy must
// return the tenant.
func Example_tenants() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	type tenantKey struct{}
	tenantOf := func(r *http.Request) string {
		tenant, _ := r.Context().Value(tenantKey{}).(string)
		return tenant
	}
	findTenant := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := context.WithValue(r.Context(), tenantKey{}, r.Header.Get("X-Tenant"))
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}

	pages, err := guard.New(store, guard.Options{DefaultTTL: time.Minute, VaryBy: tenantOf})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	r := chi.NewRouter()
	r.Use(findTenant, pages.Handler)
	r.Get("/plan", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "plan of ", tenantOf(r))
	})

	for _, tenant := range []string{"red", "blue", "red"} {
		see(r, "/plan", "X-Tenant", tenant)
	}
	// Output:
	// plan of red | cacheguard; fwd=uri-miss; stored
	// plan of blue | cacheguard; fwd=uri-miss; stored
	// plan of red | cacheguard; hit
}

// A CDN in front keeps pages for a minute. This cache keeps them for a day, because changes reach
// this cache but not the CDN. Both would obey CDN-Cache-Control, so this cache obeys a field of its
// own.
func Example_behindCDN() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	page := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, s-maxage=60")
		w.Header().Set("Shop-Cache-Control", "max-age=86400")
		fmt.Fprint(w, "page")
	}

	pages, err := guard.New(store, guard.Options{TargetedFields: []string{"Shop-Cache-Control"}})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	r := chi.NewRouter()
	r.With(pages.Handler).Get("/page", page)

	see(r, "/page")
	see(r, "/page")
	// Output:
	// page | cacheguard; fwd=uri-miss; stored
	// page | cacheguard; hit
}

// httputil.ReverseProxy flushes a response without Content-Length after each piece. With
// RecordFlushed other clients get this response when it is whole. An event stream is never stored.
func Example_reverseProxy() {
	var asked atomic.Int32
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		for _, piece := range []string{"a ", "long ", "report"} {
			fmt.Fprint(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer backend.Close()
	to, err := url.Parse(backend.URL)
	if err != nil {
		panic(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}

	store := memstore.New(memstore.Options{})
	defer store.Close()
	pages, err := guard.New(store, guard.Options{DefaultTTL: time.Minute, RecordFlushed: true})
	if err != nil {
		panic(err)
	}
	defer pages.Close()
	handler := pages.Handler(proxy)

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/report", nil))
		fmt.Println(w.Body)
	}
	fmt.Println("asked:", asked.Load())
	// Output:
	// a long report
	// a long report
	// asked: 1
}
