package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// If a response has more tags than can be kept, it could not be purged by each of them. It is not
// stored, and the log says so, once.
func TestTooManyTags(t *testing.T) {
	var log bytes.Buffer
	runs := 0
	_, h := front(t,
		middleware.Options{DefaultTTL: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(w http.ResponseWriter, r *http.Request) {
			runs++
			for i := range 60 {
				w.Header().Add("Cache-Tag", fmt.Sprint("product:", i))
			}
			fmt.Fprint(w, "list")
		})
	for range 3 {
		fetch(h, "/")
	}
	if runs != 3 || strings.Count(log.String(), "more tags") != 1 {
		t.Errorf("%d runs; the log says %s", runs, &log)
	}
}

// PurgeHandler executes all purges of a request or none.
func TestPurgeHandlerRefusesWhatItDoesntKnow(t *testing.T) {
	cache, _ := front(t, middleware.Options{}, func(http.ResponseWriter, *http.Request) {})
	h := cache.PurgeHandler("secret")
	for form, want := range map[string]int{
		"":                         400,
		"ulr=/a":                   400,
		"url=/a&tags=x":            400,
		"url=a":                    400,
		"tag=":                     400,
		"prefix=/a?b":              400,
		"url=/a&tag=x&prefix=/":    204,
		"stale=/a&stale=http://h/": 204,
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(url.PathEscape(form)))
		r.Body = io.NopCloser(strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "bearer secret")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d %s; want %d", form, w.Code, w.Body, want)
		}
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"url":"/a"}`))
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("JSON: %d %s", w.Code, w.Body)
	}
}
