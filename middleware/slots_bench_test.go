package middleware_test

import (
	"net/http"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// BenchmarkAlone measures the cost of a response that is for its own client alone, without a
// network.
//
//	go test -run - -bench Alone -benchmem ./middleware
func BenchmarkAlone(b *testing.B) {
	for _, c := range []struct {
		name, field, value, says string
		pieces                   int // the number of pieces of 1 KiB
	}{
		{"no-store/1KiB", "Cache-Control", "no-store", "", 1},
		{"no-store/64KiB", "Cache-Control", "no-store", "", 64},
		{"private/1KiB", "Accept", "*/*", "private", 1},
		{"private/64KiB", "Accept", "*/*", "private", 64},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := newCache(b,
				middleware.Options{}).
				Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.says != "" {
						w.Header().Set("Cache-Control", c.says)
					}
					for range c.pieces {
						_, _ = w.Write(kilobyte)
					}
				}))
			r, w := benchRequest("/"), &unread{}
			r.Header.Set(c.field, c.value)
			b.ReportAllocs()
			for b.Loop() {
				w.header, w.n = make(http.Header), 0
				if h.ServeHTTP(w, r); w.n != c.pieces*len(kilobyte) {
					b.Fatalf("a response of %d bytes", w.n)
				}
			}
		})
	}
}
