package middleware_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// A handler may leave out its own Vary when it answers 304 or HEAD. The stored Vary then stays,
// whatever layers in front add to theirs.
func TestVaryStaysAfterValidation(t *testing.T) {
	for _, way := range []string{"304", "HEAD"} {
		cache := newCache(t, middleware.Options{IgnoreVary: []string{"Origin"}})
		h := corsInFront(inFront(
			cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("ETag", `"1"`)
				if r.Header.Get("If-None-Match") != "" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				if r.Method != http.MethodHead {
					w.Header().Add("Vary", "Accept-Language")
					fmt.Fprint(w, r.Header.Get("Accept-Language"))
				}
			})), func(_ *http.Request, h http.Header) { h.Add("Vary", "Accept-Encoding") }))
		asks(h, "GET", "/", "Accept-Language", "fr")
		if way == "304" {
			asks(h, "GET", "/", "Accept-Language", "fr", "Cache-Control", "no-cache")
		} else {
			asks(h, "HEAD", "/", "Accept-Language", "fr", "Cache-Control", "no-cache")
		}
		for _, language := range []string{"fr", "de"} {
			if got := asks(h, "GET", "/", "Accept-Language",
				language).Body.String(); got != language {
				t.Errorf("%s: %s got %q", way, language, got)
			}
		}
	}
}

// A field that IgnoreVary removes from Vary stays removed when the handler answers 304, and when it
// answers a HEAD.
func TestIgnoredVaryStaysOutAfterValidation(t *testing.T) {
	for _, way := range []string{"304", "HEAD"} {
		cache := newCache(t, middleware.Options{IgnoreVary: []string{"Origin"}})
		runs := 0
		h := corsInFront(
			cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("ETag", `"1"`)
				w.Header().Add("Vary", "Accept")
				if r.Header.Get("If-None-Match") != "" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				fmt.Fprint(w, "the page")
			})))
		asks(h, "GET", "/", "Origin", "a")
		if way == "304" {
			asks(h, "GET", "/", "Origin", "b", "Cache-Control", "no-cache")
		} else {
			asks(h, "HEAD", "/", "Origin", "b", "Cache-Control", "no-cache")
		}
		before := runs
		for _, origin := range []string{"a", "b", "c"} {
			if w := asks(h, "GET", "/", "Origin", origin); w.Header().Get("Age") == "" {
				t.Errorf("%s: Origin %s has it made: %v", way, origin, w.Header())
			}
		}
		if asks(h, "GET", "/", "Origin", "a", "Accept", "x"); runs != before+1 {
			t.Errorf("%s: the handler's own Vary is lost", way)
		}
	}
}

// A handler may set Vary to the very words that a layer in front has set, and a layer between them
// may copy the header. IgnoreVary leaves out only the words of the layer in front.
func TestIgnoredVaryIsNotTheHandlers(t *testing.T) {
	restoring := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			saved := w.Header().Clone()
			clear(w.Header())
			maps.Copy(w.Header(), saved)
			h.ServeHTTP(w, r)
		})
	}
	timing := func(h http.Handler) http.Handler {
		return http.TimeoutHandler(h, time.Hour, "late")
	}
	plain := func(h http.Handler) http.Handler { return h }
	set := func(h http.Header) { h.Set("Vary", "Origin") }
	add := func(h http.Header) { h.Add("Vary", "Origin") }
	other := func(h http.Header) { h.Add("Vary", "Accept") }
	others := func(h http.Header) { h["Vary"] = append([]string{"Accept"}, h["Vary"]...) }
	for name, c := range map[string]struct {
		vary    func(http.Header)
		between func(http.Handler) http.Handler
		runs    int // for two origins
	}{
		"set": {set, plain, 2}, "added": {add, plain, 2}, "none": {func(http.Header) {}, plain, 1},
		"another": {other, plain, 1}, "another, as the first": {others, plain, 1},
		"set behind a timeout":       {set, timing, 2},
		"added behind a timeout":     {add, timing, 2},
		"none, restored":             {func(http.Header) {}, restoring, 1},
		"another, restored":          {other, restoring, 1},
		"set, after it was restored": {set, restoring, 2},
	} {
		for _, way := range []string{"GET", "304", "HEAD", "part", "POST"} {
			t.Run(name+", "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cache := newCache(t, middleware.Options{
						IgnoreVary: []string{"Origin"}, StorePosts: true,
					})
					runs := 0
					h := corsInFront(cache.Handler(c.between(http.HandlerFunc(
						func(w http.ResponseWriter, r *http.Request) {
							runs++
							w.Header().Set("Cache-Control", "max-age=60")
							c.vary(w.Header())
							body := "the page for " + r.Header.Get("Origin")
							w.Header().Set("ETag", `"`+body+`"`)
							switch {
							case r.Method == http.MethodPost:
								w.Header().Set("Content-Location", "/")
							case r.Header.Get("If-None-Match") == `"`+body+`"`:
								w.WriteHeader(http.StatusNotModified)
								return
							case r.Header.Get("Range") != "":
								w.Header().Set("Content-Range",
									fmt.Sprintf("bytes 0-3/%d", len(body)))
								w.WriteHeader(http.StatusPartialContent)
								body = body[:4]
							}
							fmt.Fprint(w, body)
						}))))
					get := func(origin string, more ...string) string {
						header := append([]string{"Origin", origin}, more...)
						return asks(h, "GET", "/", header...).Body.String()
					}
					switch way {
					case "304":
						get("https://a")
						get("https://a", "Cache-Control", "no-cache")
					case "HEAD":
						get("https://a")
						asks(h, "HEAD", "/", "Origin", "https://a", "Cache-Control", "no-cache")
					case "POST":
						asks(h, "POST", "/", "Origin", "https://a")
					}
					before := runs
					if way == "part" {
						get("https://a", "Range", "bytes=0-3")
						get("https://b", "Range", "bytes=0-3")
						if runs != c.runs {
							t.Errorf("%d parts were made; want %d", runs, c.runs)
						}
						return
					}
					for _, origin := range []string{"https://a", "https://b"} {
						if got := get(origin); c.runs == 2 && got != "the page for "+origin {
							t.Errorf("%s got %q", origin, got)
						}
					}
					if want := c.runs; way == "GET" && runs != want ||
						way != "GET" && runs != before+want-1 {
						t.Errorf("%d runs, %d of them before", runs, before)
					}
				})
			})
		}
	}
}

// To a cache in front, the Vary of a hit in a cache behind it is the handler's, even if a layer in
// front has set the same words.
func TestIgnoredVaryBeforeAFurtherCache(t *testing.T) {
	inner := newCache(t, middleware.Options{IgnoreQuery: []string{"utm_*"}})
	outer := newCache(t, middleware.Options{IgnoreVary: []string{"Origin"}})
	h := corsInFront(outer.Handler(inner.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Add("Vary", "Origin")
			fmt.Fprint(w, r.Header.Get("Origin"))
		}))))
	for _, target := range []string{"/", "/?utm_x=1"} {
		for _, origin := range []string{"https://a", "https://b"} {
			if got := asks(h, "GET", target, "Origin", origin).Body.String(); got != origin {
				t.Errorf("%s: %s got %q", target, origin, got)
			}
		}
	}
}
