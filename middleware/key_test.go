package middleware

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// readRequest reads a request as a server would. It returns nil if a server would refuse the
// request.
func readRequest(raw string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "\r\n\r\n")))
	if err != nil {
		return nil
	}
	return r
}

func TestKey(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		secure    bool
		trust     []string
		want      string // "": no key
	}{
		{
			"plain", "GET /a?x=1 HTTP/1.1\r\nHost: shop.example", false, nil,
			"http://shop.example/a?x=1",
		},
		{"tls", "GET /a HTTP/1.1\r\nHost: shop.example", true, nil, "https://shop.example/a"},
		{"method", "HEAD /a HTTP/1.1\r\nHost: shop.example", false, nil, "http://shop.example/a"},
		{
			"host in capitals", "GET /A HTTP/1.1\r\nHost: SHOP.Example", false, nil,
			"http://SHOP.Example/A",
		},
		{
			"own port", "GET / HTTP/1.1\r\nHost: shop.example:80", false, nil,
			"http://shop.example:80/",
		},
		{
			"own port of tls", "GET / HTTP/1.1\r\nHost: shop.example:443", true, nil,
			"https://shop.example:443/",
		},
		{
			"other scheme's port", "GET / HTTP/1.1\r\nHost: shop.example:80", true, nil,
			"https://shop.example:80/",
		},
		{
			"no port after all", "GET / HTTP/1.1\r\nHost: shop.example:", false, nil,
			"http://shop.example:/",
		},
		{
			"other port", "GET / HTTP/1.1\r\nHost: shop.example:8080", false, nil,
			"http://shop.example:8080/",
		},
		{
			"address", "GET / HTTP/1.1\r\nHost: [2001:DB8::1]:80", false, nil,
			"http://[2001:DB8::1]:80/",
		},
		{
			"address and port", "GET / HTTP/1.1\r\nHost: [::1]:8080", false, nil,
			"http://[::1]:8080/",
		},
		{
			"spelling is kept", "GET /%7Ea/%7ea/~a%2Fb HTTP/1.1\r\nHost: h", false, nil,
			"http://h/%7Ea/%7ea/~a%2Fb",
		},
		{
			"order of the query", "GET /?b=1&a=2&b HTTP/1.1\r\nHost: h", false, nil,
			"http://h/?b=1&a=2&b",
		},
		{"empty query", "GET /a? HTTP/1.1\r\nHost: h", false, nil, "http://h/a?"},
		{"second question mark", "GET /a?b?c HTTP/1.1\r\nHost: h", false, nil, "http://h/a?b?c"},
		{"escaped question mark", "GET /a%3Fb HTTP/1.1\r\nHost: h", false, nil, "http://h/a%3Fb"},
		{"two slashes", "GET //other/a HTTP/1.1\r\nHost: h", false, nil, "http://h//other/a"},
		{
			"not UTF-8", "GET /\xff?\xfe HTTP/1.1\r\nHost: h", false, nil,
			"http://h/\xff?\xfe\x1fi/%FF?\xfe",
		},
		{
			"a number sign as it is", "GET /a#b HTTP/1.1\r\nHost: h", false, nil,
			"http://h/a#b\x1fi/a%23b",
		},
		{"a number sign escaped", "GET /a%23b HTTP/1.1\r\nHost: h", false, nil, "http://h/a%23b"},

		{
			"whole URL", "GET http://shop.example:80/a?b HTTP/1.1\r\nHost: other", false, nil,
			"http://shop.example:80/a?b\x1flhttp://shop.example:80/a?b",
		},
		{
			"whole URL without a path", "GET http://shop.example?b HTTP/1.1\r\nHost: x", false, nil,
			"http://shop.example?b\x1flhttp://shop.example?b",
		},
		{
			"whole URL, host alone", "GET http://shop.example HTTP/1.1\r\nHost: x", false, nil,
			"http://shop.example\x1flhttp://shop.example",
		},
		{
			"whole URL, capitals", "GET HTTP://Shop.example/A HTTP/1.1\r\nHost: x", false, nil,
			"http://Shop.example/A\x1flHTTP://Shop.example/A",
		},
		{
			"whole URL of tls without tls",
			"GET https://shop.example/ HTTP/1.1\r\nHost: shop.example", false, nil, "",
		},
		{
			"whole URL without tls by tls",
			"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example", true, nil, "",
		},
		{
			"whole URL with a user", "GET http://me@shop.example/ HTTP/1.1\r\nHost: shop.example",
			false, nil, "",
		},
		{
			"whole URL of something else", "GET ftp://shop.example/ HTTP/1.1\r\nHost: shop.example",
			false, nil, "",
		},
		{"opaque", "GET http:shop.example/a HTTP/1.1\r\nHost: shop.example", false, nil, ""},

		{"no host", "GET /a HTTP/1.0", false, nil, ""},
		{"empty host", "GET /a HTTP/1.1\r\nHost:", false, nil, ""},
		{"port alone", "GET /a HTTP/1.1\r\nHost: :80", false, nil, ""},
		{"two ports", "GET /a HTTP/1.1\r\nHost: h:1:2", false, nil, ""},
		{"no port", "GET /a HTTP/1.1\r\nHost: h:x", false, nil, ""},
		{"host with a path", "GET /a HTTP/1.1\r\nHost: h/b", false, nil, ""},
		{"host with a query", "GET /a HTTP/1.1\r\nHost: h?b", false, nil, ""},
		{"host with a user", "GET /a HTTP/1.1\r\nHost: me@h", false, nil, ""},
		{"host with a space", "GET /a HTTP/1.1\r\nHost: h x", false, nil, ""},
		{"two hosts", "GET /a HTTP/1.1\r\nHost: h,x", false, nil, ""},
		{"broken address", "GET /a HTTP/1.1\r\nHost: [::1", false, nil, ""},
		{"address and more", "GET /a HTTP/1.1\r\nHost: [::1]x", false, nil, ""},
		{"star", "OPTIONS * HTTP/1.1\r\nHost: h", false, nil, ""},
		{"connect to a path", "CONNECT /rpc HTTP/1.1\r\nHost: h", false, nil, ""},
		{"connect", "CONNECT h:80 HTTP/1.1\r\nHost: h:80", false, nil, ""},

		{
			"forwarded, not trusted",
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https",
			false, nil, "http://h/",
		},
		{
			"forwarded host", "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: Shop.example:80",
			false, []string{"x-forwarded-host"},
			"http://Shop.example:80/\x1ffhttp(1 h)=1(15 Shop.example:80)-",
		},
		{
			"forwarded host alone", "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https", false,
			[]string{forwardedHost}, "http://h/",
		},
		{
			"forwarded scheme", "GET / HTTP/1.1\r\nHost: h:443\r\nX-Forwarded-Proto: HTTPS", false,
			[]string{forwardedProto}, "https://h:443/\x1ffhttp(5 h:443)-=1(5 HTTPS)",
		},
		{
			"forwarded by two", "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: evil, shop.example",
			false, []string{forwardedHost},
			"http://shop.example/\x1ffhttp(1 h)=1(18 evil, shop.example)-",
		},
		{
			"forwarded in two lines",
			"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Host: shop.example",
			false, []string{forwardedHost},
			"http://shop.example/\x1ffhttp(1 h)=2(4 evil)(12 shop.example)-",
		},
		{
			"forwarded is not there", "GET / HTTP/1.1\r\nHost: h", true,
			[]string{forwardedHost, forwardedProto}, "https://h/",
		},
		{
			"forwarded is empty", "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: ", false,
			[]string{forwardedHost}, "",
		},
		{
			"forwarded host is none", "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: a/b", false,
			[]string{forwardedHost}, "",
		},
		{
			"forwarded scheme is none", "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: ws", false,
			[]string{forwardedProto}, "",
		},
		{
			"whole URL as the proxy has it",
			"GET https://h/ HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https", false,
			[]string{forwardedProto}, "https://h/\x1flhttps://h/\x1ffhttp(1 h)-=1(5 https)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readRequest(c.raw)
			if r == nil {
				t.Fatal("net/http refuses it")
			}
			if c.secure {
				r.TLS = handshake(r.Host)
			}
			k := newKeyer(Options{TrustForwarded: c.trust})
			if got := k.key(r); got != c.want {
				t.Errorf("key %q, want %q", got, c.want)
			}
			if k.ok(r) != (c.want != "") {
				t.Errorf("ok is %v", k.ok(r))
			}
		})
	}
}

// Two mounts of one handler see the same URL.Path, but their resources are different.
func TestKeyIsOfTheRequestAsReceived(t *testing.T) {
	k := newKeyer(Options{})
	var keys []string
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys = append(keys, k.key(r))
	})
	mux := http.NewServeMux()
	mux.Handle("/a/", http.StripPrefix("/a", inner))
	mux.Handle("/b/", http.StripPrefix("/b", inner))
	mux.Handle("/x", inner)
	for _, path := range []string{"/a/x", "/b/x", "/x"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	if len(keys) != 3 || keys[0] == keys[1] || keys[0] == keys[2] || keys[1] == keys[2] {
		t.Errorf("keys %q", keys)
	}
}

// A layer in front may map one request line to different resources, by a cookie for example.
func TestKeyHasWhatTheHandlerSees(t *testing.T) {
	k := newKeyer(Options{})
	seen := map[string]string{}
	for name, change := range map[string]func(r *http.Request){
		"nothing": func(*http.Request) {},
		"path":    func(r *http.Request) { r.URL.Path = "/de/a" },
		"escapes": func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b", "/a%2Fb" },
		"query":   func(r *http.Request) { r.URL.RawQuery = "lang=de" },
		"mark":    func(r *http.Request) { r.URL.ForceQuery = true },
		"scheme":  func(r *http.Request) { r.URL.Scheme = "https" },
		"host":    func(r *http.Request) { r.URL.Host = "inside" },
		"empty":   func(r *http.Request) { r.URL.Path = "" },
		"stale":   func(r *http.Request) { r.URL.RawPath = "/a"; r.URL.Path = "/c" },
	} {
		r := httptest.NewRequest("GET", "/a", nil)
		change(r)
		key := k.key(r)
		if other, taken := seen[key]; taken || key == "" {
			t.Errorf("%q and %q have the key %q", name, other, key)
		}
		seen[key] = name
	}
	for name, change := range map[string]func(r *http.Request){
		"no URL":              func(r *http.Request) { r.URL = nil },
		"opaque":              func(r *http.Request) { r.URL.Opaque = "a" },
		"user":                func(r *http.Request) { r.URL.User = url.User("me") },
		"fragment":            func(r *http.Request) { r.URL.Fragment = "b" },
		"separator in query":  func(r *http.Request) { r.URL.RawQuery = "a\x1fb" },
		"control in the line": func(r *http.Request) { r.RequestURI = "/a\x1fb" },
		"a whole URL, but the host has been changed": func(r *http.Request) {
			r.RequestURI, r.URL.Scheme, r.URL.Host, r.Host = "http://a/", "http", "a", "b"
		},
	} {
		r := httptest.NewRequest("GET", "/a", nil)
		change(r)
		if key := k.key(r); key != "" {
			t.Errorf("%s: key %q, want none", name, key)
		}
	}
}

func TestKeyOfAPathThatIsStillEscaped(t *testing.T) {
	k := newKeyer(Options{})
	r := readRequest("GET /%41 HTTP/1.1\r\nHost: h")
	escaped := readRequest("GET /%41 HTTP/1.1\r\nHost: h")
	escaped.URL.Path, escaped.URL.RawPath = "/%41", ""
	if k.key(r) == k.key(escaped) {
		t.Errorf("/A and /%%41 are both %q", k.key(r))
	}
}

func TestKeyOfARequestMadeHere(t *testing.T) {
	k := newKeyer(Options{})
	r, err := http.NewRequest("GET", "http://Shop.example/a%20b?c", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := k.key(r), "http://Shop.example/a%20b?c"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
}

// Each spelling of a URL has a key of its own, and a purge of any spelling finds all of them.
func TestSpellingsAreOneForPurges(t *testing.T) {
	k := newKeyer(Options{})
	for _, group := range [][]string{
		{"shop.example/a%7E", "SHOP.example/a~", "shop.example:80/a~", "shop.example:/a~",
			"shop.example:0080/a~", "shop.example./a~",
			"Shop.Example.:443/a~"},
		{"[2001:db8::1]/", "[2001:DB8::1]/", "[2001:db8:0:0::1]:80/", "[2001:0db8::0001]:443/"},
		{"shop.example:8080/", "Shop.example:08080/", "shop.example.:8080/"},
	} {
		keys := map[string]bool{}
		want, err := urlTag("https://" + group[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, spelling := range group {
			host, path, _ := strings.Cut(spelling, "/")
			key := k.key(readRequest("GET /" + path + " HTTP/1.1\r\nHost: " + host))
			if key == "" || keys[key] {
				t.Errorf("%s: key %q, which isn't its own", spelling, key)
			}
			keys[key] = true
			if tags := tagsOf(key); !slices.Contains(tags, want) {
				t.Errorf("%s: tags %q, none of them %q", spelling, tags, want)
			}
			if got, err := urlTag("http://" + spelling); err != nil || got != want {
				t.Errorf("%s: purges %q (%v), not %q", spelling, got, err, want)
			}
		}
	}
}

// The key has the values of a trusted proxy's fields and the values of the connection, because a
// handler can read both.
func TestKeyHasWhatForwardedFieldsStandBeside(t *testing.T) {
	k := newKeyer(Options{TrustForwarded: []string{forwardedHost, forwardedProto}})
	seen := map[string]string{}
	for _, raw := range []string{
		"Host: a\r\nX-Forwarded-Host: shop", "Host: b\r\nX-Forwarded-Host: shop",
		"Host: A\r\nX-Forwarded-Host: shop",
		"Host: a\r\nX-Forwarded-Host: Shop", "Host: a\r\nX-Forwarded-Host: x, shop",
		"Host: a\r\nX-Forwarded-Host: x,shop",
		"Host: a\r\nX-Forwarded-Host: x\r\nX-Forwarded-Host: shop", "Host: shop",
		"Host: a\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Proto: http",
		"Host: a\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Proto: HTTP",
		"Host: a\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Proto: https, http",
	} {
		for _, secure := range []bool{false, true} {
			r := readRequest("GET / HTTP/1.1\r\n" + raw)
			if secure {
				r.TLS = handshake(r.Host)
			}
			key := k.key(r)
			if other := seen[key]; key == "" || other != "" {
				t.Errorf("%q, TLS %v: key %q, which %q has too", raw, secure, key, other)
			}
			seen[key] = raw
		}
	}
}

func TestKeyHasTheGroup(t *testing.T) {
	k := newKeyer(Options{VaryBy: func(r *http.Request) string { return r.Header.Get("Group") }})
	seen := map[string]bool{}
	for _, group := range []string{"", "a", "\x1fga", "a\x1fi/x"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Group", group)
		seen[k.key(r)] = true
	}
	if len(seen) != 4 {
		t.Errorf("keys %v", seen)
	}
}

func TestKeyAllocates(t *testing.T) {
	k := newKeyer(Options{VaryBy: func(r *http.Request) string { return "staff" }})
	r := readRequest("GET /catalog/7?page=2&sort=price HTTP/1.1\r\nHost: shop.example")
	if n := testing.AllocsPerRun(100, func() { k.key(r) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzKey shows that requests with the same key are for the same resource: the request's target can
// be read from the key.
func FuzzKey(f *testing.F) {
	f.Add(false, "shop.example", "/a?x", "", "", false, "")
	f.Add(true, "SHOP.example:443", "http://shop.example/?", "/b", "q", true, "staff")
	f.Add(false, "[::1]:80", "//x//?%", "/a#b", "", true, "\x1fi/\x1fg")
	f.Add(false, "h", "/a#b%2F", "", "", false, "")
	f.Add(false, "h", "/", "", "", true, "")
	f.Add(false, "h", "/a?x", "/a", "y", true, "")
	f.Fuzz(func(
		t *testing.T, secure bool, host, uri, path, query string, rewrite bool, group string,
	) {
		r := readRequest("GET " + uri + " HTTP/1.1\r\nHost: " + host)
		if r == nil {
			return
		}
		if secure {
			r.TLS = handshake(r.Host)
		}
		if rewrite {
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery = path, "", query
		}
		k := newKeyer(Options{VaryBy: func(*http.Request) string { return group }})
		key := k.key(r)
		if (key != "") != k.ok(r) {
			t.Fatalf("key %q, ok %v", key, k.ok(r))
		}
		if key == "" {
			return
		}
		outer, gotGroup, found := strings.Cut(key, "\x1fg")
		if !found || gotGroup != group {
			t.Fatalf("%q: group %q, want %q", key, gotGroup, group)
		}
		outer, inside, rewritten := strings.Cut(outer, "\x1fi")
		outer, line, whole := strings.Cut(outer, "\x1fl")
		if whole == strings.HasPrefix(r.RequestURI, "/") || whole && line != r.RequestURI {
			t.Fatalf("%q: request line %q, want %q", key, line, r.RequestURI)
		}
		scheme, rest, _ := strings.Cut(outer, "://")
		if (scheme == "https") != secure || !secure && scheme != "http" {
			t.Fatalf("%q: scheme %q", key, scheme)
		}
		gotHost, gotURI := rest, ""
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			gotHost, gotURI = rest[:i], rest[i:]
		}
		if gotHost != r.Host {
			t.Fatalf("%q: host %q of %q", key, gotHost, r.Host)
		}
		if strings.HasPrefix(r.RequestURI, "/") && gotURI != r.RequestURI ||
			!strings.HasSuffix(r.RequestURI, gotURI) {
			t.Fatalf("%q: path and query %q of %q", key, gotURI, r.RequestURI)
		}
		if !rewritten {
			inside = gotURI
		}
		seen, seenQuery, _ := strings.Cut(inside, "?")
		if seenQuery != r.URL.RawQuery {
			t.Fatalf("%q: the handler's query %q, want %q", key, seenQuery, r.URL.RawQuery)
		}
		if unescaped, err := url.PathUnescape(seen); err != nil || unescaped != r.URL.Path {
			t.Fatalf("%q: the handler's path %q (%v), want %q", key, unescaped, err, r.URL.Path)
		}
	})
}

// handshake returns the TLS state of a connection for a host.
func handshake(host string) *tls.ConnectionState {
	name, _, _ := splitHost(host)
	return &tls.ConnectionState{ServerName: name}
}
