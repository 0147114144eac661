package middleware_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/middleware"
)

// BenchmarkUnshared measures the cost of a response that is for its own client only. From the first
// response at a URL the cache learns that responses there can't be shared; "next" are the later
// responses at the same URL.
//
//	go test -run '^$' -bench BenchmarkUnshared -benchmem ./middleware
func BenchmarkUnshared(b *testing.B) {
	for _, said := range []string{"private", "no-store", "max-age=0", ""} {
		for _, kind := range []string{"first", "next"} {
			b.Run(fmt.Sprintf("%s/%s", kind, said), func(b *testing.B) {
				store := memstore.New(memstore.Options{})
				cache, err := middleware.New(store,
					middleware.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				defer cache.Close()
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if said != "" {
						w.Header()["Cache-Control"] = []string{said}
					}
					_, _ = w.Write(kilobyte)
				}))
				r, w := benchRequest("/"), &unread{}
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					if kind == "first" {
						r.RequestURI = fmt.Sprintf("/%d", n%100000)
						n++
					}
					if !serveUnread(h, r, w) {
						b.Fatalf("a response of %d bytes", w.n)
					}
				}
			})
		}
	}
}
