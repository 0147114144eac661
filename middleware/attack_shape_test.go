package middleware_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/middleware"
)

// A handler can read the values that a router in front has taken from the path before Options.Shape
// changes it. So no client gets a page that was made with other values.
func TestShapeLeavesWhatARouterHasRead(t *testing.T) {
	opts := middleware.Options{Shape: func(r *http.Request) {
		r.URL.Path = strings.ToLower(r.URL.Path)
		if _, rest, ok := strings.Cut(r.URL.Path, "/for/"); ok {
			_, r.URL.Path, _ = strings.Cut(rest, "/")
			r.URL.Path = "/" + r.URL.Path
		}
	}}
	pages := func(read func(r *http.Request, name string) string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprintf(w, "%s for %s of %s", r.URL.Path, read(r, "who"), read(r, "what"))
		})
	}
	fromRequest := (*http.Request).PathValue
	for name, build := range map[string]func(c *middleware.Cache) http.Handler{
		"ServeMux": func(c *middleware.Cache) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /for/{who}/{what...}", c.Handler(pages(fromRequest)))
			return mux
		},
		"chi": func(c *middleware.Cache) http.Handler {
			r := chi.NewRouter()
			r.With(c.Handler).Get("/for/{who}/{what}", pages(chi.URLParam).ServeHTTP)
			return r
		},
		"chi, mounted": func(c *middleware.Cache) http.Handler {
			r := chi.NewRouter()
			r.Route("/for", func(r chi.Router) {
				r.Use(c.Handler)
				r.Get("/{who}/{what}", pages(chi.URLParam).ServeHTTP)
			})
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(newCache(t, opts))
			for range 2 {
				for _, path := range []string{"/for/ann/Page", "/for/bob/page", "/for/ann/page"} {
					part := strings.Split(path, "/")
					want := fmt.Sprintf("/page for %s of %s", part[2], part[3])
					if got := asks(h, "GET", path).Body.String(); got != want {
						t.Errorf("%s: got %q", path, got)
					}
				}
			}
			if status := asks(h, "GET",
				"/for/ann/page").Header().Get("Cache-Status"); !strings.Contains(status, "; hit") {
				t.Errorf("not shared at all: %q", status)
			}
		})
	}
}

// A router behind the cache reads the path that Shape has left. Requests share responses by this
// path.
func TestShapeInFrontOfRoutersShares(t *testing.T) {
	runs := 0
	mux := http.NewServeMux()
	mux.HandleFunc("/{page}", func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, r.PathValue("page"))
	})
	h := newCache(t, middleware.Options{Shape: func(r *http.Request) {
		r.URL.Path = strings.ToLower(r.URL.Path)
	}}).Handler(mux)
	for _, path := range []string{"/page", "/PAGE", "/Page"} {
		if got := asks(h, "GET", path).Body.String(); got != "page" || runs != 1 {
			t.Errorf("%s: got %q after %d runs", path, got, runs)
		}
	}
}

// If a layer in front has parsed the form, and Shape changes the query, the handler doesn't get the
// old form.
func TestShapeForgetsTheForm(t *testing.T) {
	h := newCache(t,
		middleware.Options{
			Shape: func(r *http.Request) { r.URL.RawQuery = "page=1" },
		}).Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, r.FormValue("page"), r.FormValue("user"))
		}))
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		h.ServeHTTP(w, r)
	})
	for _, target := range []string{"/?page=2&user=ann", "/?page=1&user=bob"} {
		if got := asks(outer, "GET", target).Body.String(); got != "1" {
			t.Errorf("%s: got %q", target, got)
		}
	}
}

// Options.Hosts also makes the names of hosts in the TLS handshake equal.
func TestHostsAreOneInTheHandshake(t *testing.T) {
	runs := 0
	h := newCache(t,
		middleware.Options{
			Hosts: map[string]string{"www.example.com": "example.com"},
		}).Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.Header().Set("Cache-Control", "max-age=60")
			fmt.Fprint(w, r.Host, " ", r.TLS.ServerName)
		}))
	for _, host := range []string{"example.com", "www.example.com", "WWW.example.com:443"} {
		r := httptest.NewRequest("GET", "/", nil)
		name, _, _ := strings.Cut(host, ":")
		r.Host, r.TLS = host, &tls.ConnectionState{ServerName: name}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Body.String(); got != "example.com example.com" || runs != 1 ||
			r.TLS.ServerName != name {
			t.Errorf("%s: got %q after %d runs", host, got, runs)
		}
	}
}

// A client can send fields of a megabyte. Reading one takes time in proportion to its length,
// whatever is in it. If it took the square of the length, one request would take minutes.
func TestLongFieldsAreReadQuickly(t *testing.T) {
	const size = 1 << 20
	opts := middleware.Options{
		Normalize:      []string{"Accept", "Accept-Language", "Accept-Encoding"},
		TrustForwarded: []string{"X-Forwarded-Host"},
		TokenField:     "X-Token", TokenCookie: "token",
		IgnoreQuery: []string{"utm_*"}, IgnoreCookies: []string{"_ga*"},
	}
	_, h := front(t, opts, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Etag", `"a"`)
		fmt.Fprint(w, "page")
	})
	numbered := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < 4*size; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	long := map[string]string{"names": numbered("n%d,"), "parameters": "a/b" + numbered(";p%d=1")}
	for _, unit := range []string{
		`"\`, `"`, `a=\",`, `a="\,`, `a="b",`, `",`, `a,`, `,`, ` `, `W/"a",`, `W/"`, `a;q=`, `0-1,`,
		`a=b; `, `for="`, `for=a;`, `(`,
	} {
		long[unit] = strings.Repeat(unit, size/len(unit))
	}
	for _, field := range []string{
		"Cache-Control", "Pragma", "Accept", "Accept-Language", "Accept-Encoding", "If-None-Match",
		"If-Modified-Since", "If-Range", "Range", "Cookie", "Connection", "X-Forwarded-Host", "X-Token",
	} {
		for what, value := range long {
			if field == "Range" {
				value = "bytes=" + value
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if field == "If-Range" {
				r.Header.Set("Range", "bytes=0-1")
			}
			r.Header.Set(field, value)
			served := make(chan struct{})
			go func() {
				defer close(served)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			waittest.Next(t, fmt.Sprintf("%s of many %q", field, what), served)
		}
	}
}
