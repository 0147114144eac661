package middlewaretest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
	"github.com/cacheguard/cacheguard/middleware/middlewaretest"
)

// The page builds its links from a field that any client can send, and doesn't say so. In a test,
// Audit does the same as Run and fails the test for each finding.
func Example() {
	page := func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" {
			host = forwarded
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<script src='//%s/shop.js'></script>", host)
	}
	build := func() http.Handler {
		pages, err := middleware.New(memstore.New(memstore.Options{}),
			middleware.Options{DefaultTTL: time.Minute})
		if err != nil {
			panic(err)
		}
		r := chi.NewRouter()
		r.With(pages.Handler).Get("/catalog", page)
		return r
	}
	found := middlewaretest.Run(middlewaretest.Config{Build: build},
		httptest.NewRequest("GET", "/catalog", nil))
	for _, f := range found {
		if f.Varied == "the field X-Forwarded-Host" {
			fmt.Println(f)
		}
	}
	// Output:
	// poisoned: the field X-Forwarded-Host
	//   first:  GET http://example.com/catalog | X-Forwarded-Host: zqauditzq.example
	//   second: GET http://example.com/catalog
	//   differs from what the second gets alone: from byte 15 on the body is "<script src='//zqauditzq.example/shop.js'></script>", not "<script src='//example.com/shop.js'></script>"
	//   to do: name the field in Vary, don't read it here, or put what is read of it into Options.VaryBy; what a proxy of yours sets is Options.TrustForwarded's
}
