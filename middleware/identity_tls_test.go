package middleware_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// shown returns the user whose certificate, or whose name given to a proxy, a request has.
func shown(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	if name, ok := strings.CutPrefix(r.Header.Get("Proxy-Authorization"), "Bearer "); ok {
		return name
	}
	return "nobody"
}

// asUser sends a GET of a user who is known by a certificate or to a proxy.
func asUser(h http.Handler, user, by string) *httptest.ResponseRecorder {
	return asUserWith(h, user, by, "GET")
}

// asUserWith is asUser with a method and fields.
func asUserWith(
	h http.Handler, user, by, method string, header ...string,
) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://example.com/account", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	switch {
	case user == "nobody":
	case by == "certificate":
		r.TLS.PeerCertificates = []*x509.Certificate{{Subject: pkix.Name{CommonName: user}}}
	default:
		r.Header.Set(by, "Bearer "+user)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// If a request says who asks, no part and no response to a POST is stored for it, even if all
// clients may have the response. A response that is fresh only by the options isn't served to this
// request.
func TestNothingOfUsersIsRecorded(t *testing.T) {
	for _, by := range []string{"certificate", "Proxy-Authorization", "Authorization", "Cookie"} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(method+"/"+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					runs, lifetime := 0, "public, max-age=60"
					h := newCache(t,
						middleware.Options{
							StorePosts: true, DefaultTTL: time.Hour,
						}).Handler(http.HandlerFunc(
						func(w http.ResponseWriter, r *http.Request) {
							runs++
							w.Header().Set("Content-Location", "/account")
							if lifetime != "" {
								w.Header().Set("Cache-Control", lifetime)
							}
							if r.Header.Get("Range") != "" {
								w.Header().Set("Content-Range", "bytes 0-4/10")
								w.WriteHeader(http.StatusPartialContent)
							}
							fmt.Fprintf(w, "run %d", runs)
						}))
					ask := func(user, method string, run int) {
						t.Helper()
						var header []string
						if method == "GET" {
							header = []string{"Range", "bytes=0-4"}
						}
						if got := asUserWith(h, user, by, method,
							header...).Body.String(); got != fmt.Sprint("run ", run) {
							t.Errorf("%s of %s: %q, want run %d", method, user, got, run)
						}
					}
					ask("alice", method, 1)
					ask("alice", "GET", 2) // the user who would get a stored response
					ask("nobody", method, 3)
					// The response to the POST is the response to the next request.
					if method == "POST" {
						ask("alice", "GET", 3)
						return
					}
					ask("alice", "GET", 3)
					lifetime = ""
					asUserWith(h, "nobody", by, "POST")
					ask("nobody", "GET", 5)
					ask("nobody", "GET", 5)
					ask("alice", "GET", 6)
				})
			})
		}
	}
}

// A TLS client certificate and Proxy-Authorization say who asks, as Authorization does. A lifetime
// alone, the options or a date don't make the page of this user shared. public and s-maxage do.
func TestCertificatesAndProxiesSayWhoAsks(t *testing.T) {
	old := []string{"Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT"}
	for name, c := range map[string]struct {
		opts   middleware.Options
		header []string
		shared bool
	}{
		"DefaultTTL":   {opts: middleware.Options{DefaultTTL: time.Hour}},
		"Heuristic":    {opts: middleware.Options{Heuristic: 1}, header: old},
		"local tier":   {opts: middleware.Options{DefaultTTL: time.Hour, LocalBytes: 1 << 20}},
		"max-age":      {header: []string{"Cache-Control", "max-age=60"}},
		"Expires":      {header: []string{"Expires", "Fri, 31 Dec 2066 23:59:59 GMT"}},
		"a date":       {header: append([]string{"Cache-Control", "no-cache"}, old...)},
		"stale, dated": {header: append([]string{"Cache-Control", "public, max-age=0"}, old...)},
		"public":       {header: []string{"Cache-Control", "public, max-age=60"}, shared: true},
		"s-maxage":     {header: []string{"Cache-Control", "s-maxage=60"}, shared: true},
	} {
		for _, by := range []string{"certificate", "Proxy-Authorization"} {
			t.Run(name+"/"+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newCache(t, c.opts).Handler(http.HandlerFunc(func(
						w http.ResponseWriter, r *http.Request,
					) {
						for i := 0; i < len(c.header); i += 2 {
							w.Header().Set(c.header[i], c.header[i+1])
						}
						if r.Header.Get("If-Modified-Since") != "" {
							w.WriteHeader(http.StatusNotModified)
							return
						}
						fmt.Fprint(w, "the page of ", shown(r))
					}))
					for i, user := range []string{"alice", "bob", "nobody", "alice", "bob"} {
						want := "the page of " + user
						if c.shared {
							want = "the page of alice"
						} else if user == "nobody" && name != "DefaultTTL" && name != "local tier" &&
							name != "Heuristic" {
							continue // a response for all is stored
						}
						if got := asUser(h, user, by).Body.String(); got != want {
							t.Errorf("request %d, %s: got %q", i, user, got)
						}
					}
				})
			})
		}
	}
}

// certificate makes a certificate for a user.
func certificate(t *testing.T, user string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user},
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// The same holds with connections, by HTTP/1 and HTTP/2. Clients without a certificate share pages
// as usual. If the name in the handshake differs from Host, only requests with the same two names
// share a page.
func TestConnectionsSayWhoAsks(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", two), func(t *testing.T) {
			runs := 0
			server := httptest.NewUnstartedServer(newCache(t,
				middleware.Options{DefaultTTL: time.Hour}).Handler(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					runs++
					fmt.Fprint(w, shown(r), r.TLS.ServerName, r.ProtoMajor)
				})))
			server.EnableHTTP2 = two
			server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
			server.StartTLS()
			defer server.Close()
			proto := 1
			if two {
				proto = 2
			}
			for _, c := range []struct {
				user, server string
				runs         int // after it
			}{
				{"alice", "example.com", 1}, {"bob", "example.com", 2}, {"", "example.com", 3},
				{"", "example.com", 3},
				{"alice", "example.com", 4}, {"", "other.example.com", 5}, {"", "example.com", 5},
				{"", "other.example.com", 5},
			} {
				transport := server.Client().Transport.(*http.Transport).Clone()
				transport.TLSClientConfig.ServerName = c.server
				// The test is about the server's view only.
				transport.TLSClientConfig.InsecureSkipVerify = true
				want := fmt.Sprint("nobody", c.server, proto)
				if c.user != "" {
					transport.TLSClientConfig.Certificates = []tls.Certificate{
						certificate(t, c.user),
					}
					want = fmt.Sprint(c.user, c.server, proto)
				}
				req, _ := http.NewRequest("GET", server.URL+"/", nil)
				req.Host = "example.com:8443"
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				transport.CloseIdleConnections()
				if string(got) != want || runs != c.runs {
					t.Errorf("%+v: got %q after %d runs, want %q", c, got, runs, want)
				}
			}
		})
	}
}
