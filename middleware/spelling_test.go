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
