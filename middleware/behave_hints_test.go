package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// readingWriter keeps the header of an informational response, which has no Content-Length, as
// net/http does for HTTP/2.
type readingWriter struct {
	*httptest.ResponseRecorder
	hints []http.Header
}

func (w *readingWriter) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
		return
	}
	h := w.Header()
	if _, ok := h["Content-Length"]; ok {
		h = h.Clone()
		h.Del("Content-Length")
	}
	w.hints = append(w.hints, h)
}

// The server may still read the header of a hint while the response is made.
func TestHintsAreLeftAlone(t *testing.T) {
	for name, ask := range map[string][]string{
		"shared": {"GET"}, "alone": {"GET", "If-Match", "*"}, "part": {"GET", "Range", "bytes=0-1"},
		"change": {"POST"},
	} {
		t.Run(name, func(t *testing.T) {
			_, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</a>")
				w.WriteHeader(http.StatusEarlyHints)
				page(w, "the page")
			})
			r := httptest.NewRequest(ask[0], "/", nil)
			for i := 1; i < len(ask); i += 2 {
				r.Header.Set(ask[i], ask[i+1])
			}
			w := &readingWriter{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, r)
			got := w.Result().Header
			if _, ok := got["Content-Length"]; ok || got.Get("Cache-Status") == "" ||
				got.Get("Link") == "" {
				t.Errorf("the response has %v", got)
			}
			if len(w.hints) != 1 || len(w.hints[0]) != 1 || w.hints[0].Get("Link") == "" {
				t.Errorf("the hints are %v by now", w.hints)
			}
		})
	}
}
