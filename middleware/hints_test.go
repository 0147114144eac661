package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

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

// The fields of a hint belong to the handler's response. If the client gets the stored response
// instead, it gets none of them.
func TestHintsOfAnotherResponse(t *testing.T) {
	for _, status := range []int{http.StatusNotModified, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				again := false
				cached := newCache(t, middleware.Options{}).Handler(http.HandlerFunc(func(
					w http.ResponseWriter, r *http.Request,
				) {
					if again {
						w.Header().Set("Link", "</a>")
						w.Header().Set("X-Front", "changed")
						w.Header().Set("Content-Language", "de")
						w.WriteHeader(http.StatusEarlyHints)
						for _, name := range []string{"Link", "X-Front", "Content-Language"} {
							w.Header().Del(name)
						}
						w.WriteHeader(status)
						return
					}
					w.Header().Set("Cache-Control", "max-age=10, stale-if-error=600")
					w.Header().Set("Etag", `"1"`)
					_, _ = w.Write([]byte("the page"))
				}))
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Front", "of a layer in front")
					cached.ServeHTTP(w, r)
				})
				ask := func() *readingWriter {
					w := &readingWriter{ResponseRecorder: httptest.NewRecorder()}
					h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
					return w
				}
				ask()
				<-time.After(20 * time.Second)
				again = true
				first := ask()
				second := asks(h, "GET", "/", "Cache-Control", "max-stale")
				if len(first.hints) != 1 || first.hints[0].Get("Link") == "" {
					t.Errorf("the hints are %v", first.hints)
				}
				for _, w := range []*httptest.ResponseRecorder{first.ResponseRecorder, second} {
					w.Header().Del("Cache-Status")
				}
				if first.Code != 200 || first.Body.String() != "the page" ||
					!reflect.DeepEqual(first.Header(), second.Header()) {
					t.Errorf("got %d %q %v; a later hit has %v", first.Code, first.Body,
						first.Header(), second.Header())
				}
			})
		})
	}
}
