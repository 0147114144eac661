package middleware_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/middleware"
)

// sent returns the response of a handler to a request that is written out line by line.
func sent(t *testing.T, h http.Handler, lines ...string) *httptest.ResponseRecorder {
	t.Helper()
	r, err := http.ReadRequest(
		bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// If two clients write a request differently and a handler reads the difference, they don't share a
// response. The first request of each pair is an attacker's.
func TestWhatAHandlerReadsIsNotShared(t *testing.T) {
	const plain = "GET / HTTP/1.1"
	forwarded := middleware.Options{
		TrustForwarded: []string{"X-Forwarded-Host", "X-Forwarded-Proto"},
	}
	field := func(name string) func(r *http.Request) string {
		return func(r *http.Request) string { return r.Header.Get(name) }
	}
	host := func(r *http.Request) string { return r.Host }
	for name, c := range map[string]struct {
		opts           middleware.Options
		vary           string
		reads          func(r *http.Request) string
		attack, victim []string
	}{
		"port": {
			reads: host, attack: []string{plain, "Host: shop:80"},
			victim: []string{plain, "Host: shop"},
		},
		"case": {
			reads: host, attack: []string{plain, "Host: ShOp"},
			victim: []string{plain, "Host: shop"},
		},
		"no port after all": {reads: host,
			attack: []string{plain, "Host: shop:"}, victim: []string{plain, "Host: shop"}},
		"zeros": {
			reads: host, attack: []string{plain, "Host: shop:0080"},
			victim: []string{plain, "Host: shop:80"},
		},
		"whole URL": {reads: func(r *http.Request) string { return r.URL.String() },
			attack: []string{"GET http://shop/ HTTP/1.1", "Host: shop"},
			victim: []string{plain, "Host: shop"}},
		"request line": {reads: func(r *http.Request) string { return r.RequestURI },
			attack: []string{"GET HTTP://shop/ HTTP/1.1", "Host: shop"},
			victim: []string{"GET http://shop/ HTTP/1.1", "Host: shop"}},
		"two lines": {vary: "Accept-Language", reads: field("Accept-Language"),
			attack: []string{plain, "Host: shop", "Accept-Language: fr", "Accept-Language: de"},
			victim: []string{plain, "Host: shop", "Accept-Language: fr, de"}},
		"order": {vary: "Accept-Encoding", reads: field("Accept-Encoding"),
			attack: []string{plain, "Host: shop", "Accept-Encoding: br, gzip"},
			victim: []string{plain, "Host: shop", "Accept-Encoding: gzip, br"}},
		"case of a field": {vary: "Accept", reads: field("Accept"),
			attack: []string{plain, "Host: shop", "Accept: TEXT/html"},
			victim: []string{plain, "Host: shop", "Accept: text/html"}},
		"weight": {vary: "Accept", reads: field("Accept"),
			attack: []string{plain, "Host: shop", "Accept: text/html;q=1.000"},
			victim: []string{plain, "Host: shop", "Accept: text/html"}},
		"blanks": {vary: "X-Plan", reads: field("X-Plan"),
			attack: []string{plain, "Host: shop", "X-Plan: a ,b"},
			victim: []string{plain, "Host: shop", "X-Plan: a,b"}},
		"empty line": {vary: "X-Plan", reads: field("X-Plan"),
			attack: []string{plain, "Host: shop", "X-Plan:", "X-Plan: a"},
			victim: []string{plain, "Host: shop", "X-Plan: ,a"}},
		"host beside the forwarded one": {opts: forwarded, reads: host,
			attack: []string{plain, "Host: evil", "X-Forwarded-Host: shop"},
			victim: []string{plain, "Host: in.shop", "X-Forwarded-Host: shop"}},
		"forwarded by the client, too": {opts: forwarded, reads: field("X-Forwarded-Host"),
			attack: []string{
				plain, "Host: in.shop", "X-Forwarded-Host: evil", "X-Forwarded-Host: shop",
			},
			victim: []string{plain, "Host: in.shop", "X-Forwarded-Host: shop"}},
		"case of the forwarded host": {opts: forwarded, reads: field("X-Forwarded-Host"),
			attack: []string{plain, "Host: in.shop", "X-Forwarded-Host: SHOP"},
			victim: []string{plain, "Host: in.shop", "X-Forwarded-Host: shop"}},
		"forwarded scheme": {opts: forwarded, reads: field("X-Forwarded-Proto"),
			attack: []string{plain, "Host: in.shop", "X-Forwarded-Proto: HTTP"},
			victim: []string{plain, "Host: in.shop", "X-Forwarded-Proto: http"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, h := front(t, c.opts, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", "max-age=60")
				if c.vary != "" {
					w.Header().Set("Vary", c.vary)
				}
				fmt.Fprint(w, "made for ", c.reads(r))
			})
			for _, lines := range [][]string{c.attack, c.victim, c.attack, c.victim} {
				r, err := http.ReadRequest(
					bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
				if err != nil {
					t.Fatal(err)
				}
				if got, want := sent(t, h, lines...).Body.String(), "made for "+
					c.reads(r); got != want {
					t.Errorf("%q got %q; want %q", lines, got, want)
				}
			}
		})
	}
}

// One purge finds all stored responses of a page, whatever spellings clients have used.
func TestPurgeFindsAllSpellings(t *testing.T) {
	cache, h := front(t, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "the list")
	})
	spellings := [][]string{
		{"GET /list HTTP/1.1", "Host: shop"}, {"GET /list HTTP/1.1", "Host: SHOP"},
		{"GET /list HTTP/1.1", "Host: shop:80"},
		{"GET /list HTTP/1.1", "Host: shop:443"}, {"GET /list HTTP/1.1", "Host: Shop.:080"},
		{"GET /%6cist HTTP/1.1", "Host: shop"},
		{"GET http://shop/list HTTP/1.1", "Host: shop"}, {"GET /list? HTTP/1.1", "Host: shop"},
	}
	for _, url := range []string{"https://shop/list", "http://SHOP:80/%6Cist", "/list"} {
		for _, lines := range spellings {
			sent(t, h, lines...)
			if w := sent(t, h, lines...); w.Header().Get("Age") == "" {
				t.Errorf("%q is not stored: %v", lines, w.Header())
			}
		}
		if err := cache.Purge(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		for _, lines := range spellings {
			if w := sent(t, h, lines...); w.Header().Get("Age") != "" {
				t.Errorf("%q is still there after a purge of %s", lines, url)
			}
		}
	}
}

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
