package middleware_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/middleware"
)

// If an option makes requests equal, they are equal for the cache and for the handler. So the parts
// that the option removes can't get into the response of another client.
func TestShapes(t *testing.T) {
	for name, c := range map[string]struct {
		opts  middleware.Options
		sees  string     // what the handler sees of all these requests
		alike [][]string // requests with one response
		other [][]string // requests with others
		purge string
	}{
		"Hosts": {
			opts: middleware.Options{
				Hosts: map[string]string{
					"www.Shop": "shop", "10.0.0.1:8080": "shop", "shop": "shop",
				},
			},
			sees: "shop /a /a []",
			alike: [][]string{
				{"GET /a HTTP/1.1", "Host: shop"}, {"GET /a HTTP/1.1", "Host: WWW.shop:80"},
				{"GET /a HTTP/1.1", "Host: 10.0.0.1:8080"}, {"GET /a HTTP/1.1", "Host: Shop"},
			},
			other: [][]string{
				{"GET /a HTTP/1.1", "Host: m.shop"}, {"GET /a HTTP/1.1", "Host: 10.0.0.1"},
			},
			purge: "https://www.shop/a",
		},
		"IgnoreQuery": {
			opts: middleware.Options{IgnoreQuery: []string{"utm_*", "fbclid"}},
			sees: "shop /a?b=1&c=%20&b /a?b=1&c=%20&b []",
			alike: [][]string{
				{"GET /a?b=1&c=%20&b HTTP/1.1", "Host: shop"},
				{"GET /a?utm_source=x&b=1&c=%20&fbclid&b&utm_=2 HTTP/1.1", "Host: shop"},
				{"GET /a?b=1&utm%5Fx=2&c=%20&b HTTP/1.1", "Host: shop"},
			},
			other: [][]string{
				{"GET /a?b=1&c=%20&b&utm=1 HTTP/1.1", "Host: shop"},
				{"GET /a?b=1&c=%20 HTTP/1.1", "Host: shop"},
			},
			purge: "/a?fbclid=1&b=1&c=%20&b",
		},
		"KeepQuery": {
			opts: middleware.Options{KeepQuery: []string{"page"}},
			sees: "shop /a?page=2 /a?page=2 []",
			alike: [][]string{
				{"GET /a?page=2 HTTP/1.1", "Host: shop"},
				{"GET /a?x&page=2&page%3d=3 HTTP/1.1", "Host: shop"},
			},
			other: [][]string{
				{"GET /a?x=page=2 HTTP/1.1", "Host: shop"},
				{"GET /a?page=1 HTTP/1.1", "Host: shop"},
			},
			purge: "http://shop/a?any=1&page=2",
		},
		"KeepQuery none": {
			opts: middleware.Options{KeepQuery: []string{}},
			sees: "shop /a /a []",
			alike: [][]string{
				{"GET /a HTTP/1.1", "Host: shop"}, {"GET /a? HTTP/1.1", "Host: shop"},
				{"GET /a?x=1 HTTP/1.1", "Host: shop"},
			},
			other: [][]string{{"GET /b?x=1 HTTP/1.1", "Host: shop"}},
			purge: "/a",
		},
		"Normalize": {
			opts: middleware.Options{Normalize: []string{"x-plan"}},
			sees: "shop /a /a [a,b]",
			alike: [][]string{
				{"GET /a HTTP/1.1", "Host: shop", "X-Plan: a, b"},
				{"GET /a HTTP/1.1", "Host: shop", "X-Plan: a", "X-Plan: b"},
			},
			other: [][]string{
				{"GET /a HTTP/1.1", "Host: shop", "X-Plan: b,a"}, {"GET /a HTTP/1.1", "Host: shop"},
			},
			purge: "/a",
		},
		"Shape": {
			opts: middleware.Options{Shape: func(r *http.Request) {
				r.URL.Path = strings.ToLower(r.URL.Path)
				r.Header["X-Plan"] = []string{strings.ToUpper(r.Header.Get("X-Plan"))}
			}},
			sees: "shop /a /a [X]",
			alike: [][]string{
				{"GET /a HTTP/1.1", "Host: shop", "X-Plan: X"},
				{"GET /A HTTP/1.1", "Host: shop", "X-Plan: x"},
			},
			other: [][]string{
				{"GET /a HTTP/1.1", "Host: shop", "X-Plan: y"},
				{"GET /b HTTP/1.1", "Host: shop", "X-Plan: x"},
			},
			purge: "/a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			cache, h := front(t, c.opts, func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Vary", "X-Plan")
				fmt.Fprint(w, r.Host, " ", r.URL, " ", r.RequestURI, " ", r.Header["X-Plan"])
			})
			for round := range 2 {
				for _, lines := range c.alike {
					if got := sent(t, h, lines...).Body.String(); got != c.sees {
						t.Errorf("%q: the handler saw %q; want %q", lines, got, c.sees)
					}
				}
				if runs != 1 {
					t.Errorf("round %d: %d runs for one response", round, runs)
				}
				for i, lines := range c.other {
					if got := sent(t, h, lines...).Body.String(); got == c.sees || runs != 2+i {
						t.Errorf("%q: the handler saw %q, %d runs", lines, got, runs)
					}
				}
				if err := cache.Purge(t.Context(), c.purge); err != nil {
					t.Fatal(err)
				}
				if w := sent(t, h, c.alike[0]...); w.Header().Get("Age") != "" {
					t.Errorf("still there after a purge of %s", c.purge)
				}
				if err := cache.PurgePrefix(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
				runs = 0
			}
		})
	}
}

// A layer in front of the cache finds its request unchanged. An unsafe request reaches the handler
// as it was sent.
func TestShapesLeaveTheRequestInFrontAlone(t *testing.T) {
	cache := newCache(t, middleware.Options{
		Hosts: map[string]string{"www.shop": "shop"}, IgnoreQuery: []string{"x"},
		Normalize: []string{"Accept"},
		Shape:     func(r *http.Request) { r.URL.Path = "/other"; r.Header.Set("X-New", "1") },
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, r.URL)
	})
	h := cache.Handler(mux)
	for method, want := range map[string]string{"GET": "shop/other?y", "POST": "www.shop/a?x&y"} {
		r := httptest.NewRequest(method, "/a?x&y", nil)
		r.Host, r.Header["Accept"] = "www.shop", []string{"b", "a"}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Body.String() != want {
			t.Errorf("%s: the handler saw %q; want %q", method, w.Body, want)
		}
		if r.Host != "www.shop" || r.URL.String() != "/a?x&y" || r.RequestURI != "/a?x&y" ||
			len(r.Header["Accept"]) != 2 || r.Header["X-New"] != nil {
			t.Errorf("%s: the request became %s %s %v", method, r.Host, r.URL, r.Header)
		}
		if r.Pattern != "/{rest...}" {
			t.Errorf("%s: pattern %q", method, r.Pattern)
		}
	}
}

func TestWrongShapes(t *testing.T) {
	for want, opts := range map[string]middleware.Options{
		"Hosts has":     {Hosts: map[string]string{"a/b": "c"}},
		"for \"a\"":     {Hosts: map[string]string{"a": ""}},
		"itself":        {Hosts: map[string]string{"a": "b", "b": "c"}},
		"exclude":       {IgnoreQuery: []string{"a"}, KeepQuery: []string{}},
		"Normalize has": {Normalize: []string{"cookie"}},
	} {
		if _, err := middleware.New(nil, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", opts, err, want)
		}
	}
}

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

// If the options remove fields from the query, the handler finds them nowhere. This holds also if a
// layer in front has parsed the form.
func TestParsedFormHasNoFieldsThatAreTakenOut(t *testing.T) {
	cache := newCache(t, middleware.Options{KeepQuery: []string{}, DefaultTTL: time.Minute})
	inner := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.FormValue("q"))
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.FormValue("lang")
		inner.ServeHTTP(w, r)
	})
	asks(h, "GET", "/?q=evil")
	if got := asks(h, "GET", "/").Body.String(); got != "" {
		t.Errorf("a field that was taken out reads %q", got)
	}
}
