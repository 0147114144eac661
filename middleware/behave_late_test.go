package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// A handler may leave a goroutine behind that goes on writing. Its bytes are part of no response.
func TestWritesAfterTheHandlerHasReturned(t *testing.T) {
	late := strings.Repeat("somebody else's. ", 10<<10)
	for name, write := range map[string]func(w http.ResponseWriter) error{
		"Write": func(w http.ResponseWriter) error {
			_, err := w.Write([]byte(late))
			return err
		},
		"WriteString": func(w http.ResponseWriter) error {
			_, err := io.WriteString(w, late)
			return err
		},
		"ReadFrom": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, strings.NewReader(late))
			return err
		},
		"Flush": func(w http.ResponseWriter) error {
			return http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, status := range []string{"max-age=60", "no-store"} {
				cache := newCache(t, middleware.Options{LocalBytes: 1 << 20})
				var kept http.ResponseWriter
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					kept = w
					w.Header().Set("Cache-Control", status)
					_, _ = w.Write([]byte("all is well"))
				}))
				first := asks(h, "GET", "/")
				if err := write(kept); err == nil {
					t.Errorf("%s: no error", status)
				}
				kept.WriteHeader(http.StatusTeapot)
				for _, got := range []string{
					first.Body.String(), asks(h, "GET", "/").Body.String(),
				} {
					if got != "all is well" {
						t.Errorf("%s: got %d bytes %.40q", status, len(got), got)
					}
				}
			}
		})
	}
}
