package middlewaretest

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Fields are the request fields that are varied in each audit, in addition to Authorization and
// Cookie, with the values that they get. They are the fields that common frameworks, proxies and
// handlers read.
var Fields = map[string][]string{
	"Host": {mark + ".example"}, "X-Forwarded-Host": {mark + ".example"},
	"X-Forwarded-Server": {mark + ".example"}, "X-Host": {mark + ".example"},
	"X-Original-Host": {mark + ".example"}, "X-HTTP-Host-Override": {mark + ".example"},
	"Forwarded":         {"host=" + mark + ".example;proto=https;for=192.0.2.66"},
	"X-Forwarded-Proto": {"https", mark}, "X-Forwarded-Scheme": {"https", mark},
	"X-Forwarded-Protocol": {"https"}, "X-Forwarded-Ssl": {"on"}, "X-Url-Scheme": {"https"},
	"Front-End-Https":  {"on"},
	"X-Forwarded-Port": {"8443"}, "X-Forwarded-Prefix": {"/" + mark},
	"X-Forwarded-Path": {"/" + mark}, "X-Script-Name": {"/" + mark},
	"X-Forwarded-Uri": {"/" + mark}, "X-Original-Url": {"/" + mark}, "X-Rewrite-Url": {"/" + mark},
	"X-Accel-Redirect": {"/" + mark},
	"X-Forwarded-For":  {"192.0.2.66", mark}, "X-Real-Ip": {"192.0.2.66", mark},
	"True-Client-Ip": {"192.0.2.66"}, "Cf-Connecting-Ip": {"192.0.2.66"},
	"X-Client-Ip":  {"192.0.2.66"},
	"Cf-Ipcountry": {"JP"}, "X-Country-Code": {"JP"}, "Cloudfront-Viewer-Country": {"JP"},
	"X-Forwarded-User": {mark}, "X-Remote-User": {mark}, "X-User-Id": {mark},
	"X-Auth-Request-User": {mark}, "X-Api-Key": {mark}, "X-Tenant-Id": {mark},
	"User-Agent": {
		mark, "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Mobile/15E148",
		"Googlebot/2.1",
	},
	"Accept":          {"application/json", "image/avif", "text/" + mark, "*/*;q=0"},
	"Accept-Language": {"ja", "de", mark}, "Accept-Encoding": {"gzip", "br", "identity", mark},
	"Accept-Charset": {"utf-16"},
	"Origin":         {"https://" + mark + ".example", "null"},
	"Referer":        {"https://" + mark + ".example/"}, "X-Requested-With": {"XMLHttpRequest"},
	"Hx-Request": {"true"}, "X-Pjax": {"true"}, "Turbo-Frame": {mark}, "Rsc": {"1"},
	"Next-Router-State-Tree": {mark}, "X-Inertia": {"true"},
	"X-Http-Method-Override": {"POST", "DELETE", "HEAD"}, "X-Http-Method": {"POST"},
	"X-Method-Override": {"POST"},
	"Dnt":               {"1"}, "Sec-Gpc": {"1"}, "Save-Data": {"on"}, "Sec-Ch-Ua-Mobile": {"?1"},
	"Sec-Ch-Ua-Platform": {mark}, "Sec-Ch-Prefers-Color-Scheme": {"dark"},
	"Viewport-Width": {"320"}, "Width": {"320"}, "Dpr": {"3"}, "Ect": {"2g"},
	"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"},
	"Sec-Fetch-Dest": {"document", "iframe"}, "Sec-Purpose": {"prefetch"}, "Purpose": {"prefetch"},
	"Upgrade-Insecure-Requests": {"1"},
	"X-Debug":                   {"1", mark}, "X-Request-Id": {mark}, "X-Correlation-Id": {mark},
	"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	"Via":         {"1.1 " + mark}, "X-Wap-Profile": {mark}, "X-Api-Version": {"2", mark},
	"Content-Type": {"application/json"}, "Prefer": {"return=minimal"}, "Max-Forwards": {"0"},
	"Te":    {"trailers"},
	"Range": {"bytes=0-0"}, "If-None-Match": {"*", `"` + mark + `"`},
	"If-Modified-Since": {"Fri, 01 Jan 2100 00:00:00 GMT"}, "If-Range": {`"` + mark + `"`},
	"Cache-Control": {"no-cache"}, "Pragma": {"no-cache"},
}

// Cookies are the cookies that are varied in each audit.
var Cookies = []string{
	"session", "sessionid", "session_id", "sid", "PHPSESSID", "JSESSIONID", "connect.sid", "auth",
	"token", "access_token", "jwt", "user", "userid", "username", "id",
	"lang", "language", "locale", "theme", "currency", "country", "region", "ab", "variant", "cart",
	"flash", "csrftoken", "consent",
}

// variation describes two requests that are made from one sample.
type variation struct {
	kind   Kind
	what   string
	advice string
	// Makes the request that must not be affected; nil: the sample itself.
	victim func(*http.Request)
	change func(*http.Request)
	oneWay bool // a cache may answer the changed request by itself, differently from the handler
}

// forCaches are request fields that allow a cache to answer differently from the handler: with a
// part, with 304, or not from its stored response.
var forCaches = []string{
	"Range", "If-None-Match", "If-Modified-Since", "If-Range", "Cache-Control", "Pragma",
}

// The advice for each family of variations.
const (
	adviseField = "name the field in Vary, don't read it here, or put what is read of it into Options.VaryBy; what a proxy of yours sets is Options.TrustForwarded's"
	adviseUser  = "answer what is made for a user with Cache-Control: private (or no-store); share what isn't by not reading the cookie or field in this handler"
	adviseHost  = "let the handler take the site's address from its configuration, and not from the request; or have the key carry the host as it was received"
	adviseNamed = "have requests whose Connection names fields go past the cache, or remove these fields before anything reads them: a proxy behind the cache removes them"
	adviseConn  = "leave what the handler reads of the connection in the cache's key, or answer with Cache-Control: private (or no-store)"
	adviseBody  = "answer methods other than GET, and requests with a body, by their own routes; a GET has to mean the same whatever comes with it"
	adviseLines = "read all lines of the field (Header.Values) as one list, as the cache does, or none"
	adviseURL   = "leave what the handler reads of the URL in the cache's key"
)

// somebody is the client's address in a request if its sample has no address.
const somebody = "192.0.2.1:1234"

// request returns a copy of the sample with a change, as a server would have read it. Each call
// makes a new copy, because handlers may change the request.
func request(sample *http.Request, change func(*http.Request)) *http.Request {
	r := sample.Clone(sample.Context())
	r.Method, r.Proto, r.ProtoMajor, r.ProtoMinor = http.MethodGet, "HTTP/1.1", 1, 1
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.Host == "" {
		r.Host = "example.com"
	}
	if r.URL.Scheme == "https" && r.TLS == nil {
		r.TLS = &tls.ConnectionState{ServerName: r.URL.Hostname(), HandshakeComplete: true}
	}
	r.URL.Scheme, r.URL.Host = "", ""
	r.Body, r.ContentLength = http.NoBody, 0
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.RemoteAddr == "" {
		r.RemoteAddr = somebody
	}
	if change != nil {
		change(r)
	}
	r.RequestURI = r.URL.RequestURI()
	return r
}

// variations returns all variations of a sample.
func (c Config) variations(sample *http.Request) (all []variation) {
	for _, some := range [][]variation{
		c.users(sample), c.fields(sample), c.named(sample), hosts(), connections(), methods(),
		c.lines(sample), queries(sample.URL), paths(sample.URL),
	} {
		all = append(all, some...)
	}
	return all
}

func set(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = []string{value} }
}

func (c Config) fields(sample *http.Request) (all []variation) {
	values := map[string][]string{}
	for name := range sample.Header {
		values[name] = []string{mark}
	}
	for _, name := range c.Fields {
		values[http.CanonicalHeaderKey(name)] = []string{mark, "1"}
	}
	for name, some := range Fields {
		values[name] = append(slices.Clone(some), values[name]...)
	}
	delete(values, "Cookie")
	delete(values, "Authorization")
	for _, name := range sorted(values) {
		for _, value := range values[name] {
			all = append(all, variation{
				kind: Poisoned, what: "the field " + name, advice: adviseField,
				change: set(name, value), oneWay: slices.Contains(forCaches, name),
			})
		}
		if _, there := sample.Header[name]; there {
			all = append(all,
				variation{kind: Poisoned, what: "the field " + name + ", which is left out",
					advice: adviseField, change: func(r *http.Request) {
						delete(r.Header, name)
					}})
		}
	}
	return all
}

func sorted[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// users returns variations in which a request of a user is compared with the sample. A request of
// one of Config.Users is compared with the request of nobody and with those of the other users.
func (c Config) users(sample *http.Request) (all []variation) {
	add := func(what string, victim, change func(*http.Request)) {
		all = append(all,
			variation{kind: Leaked, what: what, advice: adviseUser, victim: victim, change: change})
	}
	nobody := func(r *http.Request) {
		delete(r.Header, "Cookie")
		delete(r.Header, "Authorization")
	}
	for _, name := range sorted(c.Users) {
		add("the user "+name+", and then nobody", nobody, c.Users[name])
		for _, other := range sorted(c.Users) {
			if other != name {
				add("the user "+name+", and then "+other, c.Users[other], c.Users[name])
			}
		}
	}
	// The value for Basic has the mark as user and password.
	for _, value := range []string{"Bearer " + mark, "Basic enFhdWRpdHpxOnpxYXVkaXR6cQ=="} {
		scheme, _, _ := strings.Cut(value, " ")
		add("Authorization ("+scheme+")", nil, set("Authorization", value))
	}
	if sample.Header["Authorization"] != nil {
		add("Authorization, which is left out", nil, func(r *http.Request) {
			delete(r.Header, "Authorization")
		})
	}
	names := slices.Concat(Cookies, c.Cookies)
	for _, cookie := range sample.Cookies() {
		names = append(names, cookie.Name)
		add("the cookie "+cookie.Name+", which is left out", nil, func(r *http.Request) {
			setCookie(r, cookie.Name, "")
		})
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for _, value := range []string{mark, "1"} {
			add("the cookie "+name, nil, func(r *http.Request) { setCookie(r, name, value) })
		}
	}
	return all
}

// setCookie replaces a cookie in the one Cookie line that browsers send. An empty value removes the
// cookie.
func setCookie(r *http.Request, name, value string) {
	var pairs []string
	for _, c := range r.Cookies() {
		if c.Name != name {
			pairs = append(pairs, c.Name+"="+c.Value)
		}
	}
	if value != "" {
		pairs = append(pairs, name+"="+value)
	}
	if delete(r.Header, "Cookie"); len(pairs) > 0 {
		r.Header["Cookie"] = []string{strings.Join(pairs, "; ")}
	}
}

func hosts() (all []variation) {
	add := func(what string, change func(*http.Request)) {
		all = append(all, variation{kind: Poisoned, what: what, advice: adviseHost, change: change})
	}
	named := func(what string, name func(host string) string) {
		add(what, func(r *http.Request) { r.Host = name(r.Host) })
	}
	named("another host", func(string) string { return mark + ".example" })
	named("the host in capitals", strings.ToUpper)
	named("the host with a port", func(host string) string { return withoutPort(host) + ":8080" })
	add("the host with the scheme's own port", func(r *http.Request) {
		port := ":80"
		if r.TLS != nil {
			port = ":443"
		}
		r.Host = withoutPort(r.Host) + port
	})
	named("the host with a dot at its end", func(host string) string {
		return withoutPort(host) + "."
	})
	add("the scheme", func(r *http.Request) {
		if r.TLS != nil {
			r.TLS = nil
			return
		}
		r.TLS = &tls.ConnectionState{ServerName: withoutPort(r.Host), HandshakeComplete: true}
	})
	return all
}

// named returns variations with fields that are also named in Connection. A proxy behind the cache,
// such as httputil.ReverseProxy, removes these fields, so that the backend answers as if they
// weren't there. A cache that compares the fields as they were received gives this response to
// other clients.
func (c Config) named(sample *http.Request) (all []variation) {
	values := map[string]string{"Cookie": "session=" + mark, "Authorization": "Bearer " + mark}
	for name, some := range Fields {
		values[name] = some[0]
	}
	for _, name := range c.Fields {
		values[http.CanonicalHeaderKey(name)] = mark
	}
	for name := range sample.Header {
		values[name] = sample.Header.Get(name)
	}
	for _, name := range forCaches {
		delete(values, name)
	}
	for _, name := range sorted(values) {
		all = append(all, variation{
			kind: Poisoned, what: "the field " + name + ", which Connection names",
			advice: adviseNamed, victim: set(name, values[name]),
			change: func(r *http.Request) {
				r.Header[name], r.Header["Connection"] = []string{values[name]}, []string{name}
			},
			oneWay: true, // a client that hides a field may get the response that others get
		})
	}
	return all
}

// connections returns variations in which the connections of two clients differ. A connection with
// TLS is compared with another one with TLS.
func connections() (all []variation) {
	add := func(kind Kind, what string, victim, change func(*http.Request)) {
		all = append(all,
			variation{kind: kind, what: what, advice: adviseConn, victim: victim, change: change})
	}
	secure := func(edit func(r *http.Request, s *tls.ConnectionState)) func(*http.Request) {
		return func(r *http.Request) {
			r.TLS = &tls.ConnectionState{ServerName: withoutPort(r.Host), HandshakeComplete: true}
			edit(r, r.TLS)
		}
	}
	plain := secure(func(*http.Request, *tls.ConnectionState) {})
	certificate := secure(func(_ *http.Request, s *tls.ConnectionState) {
		s.PeerCertificates = []*x509.Certificate{{Subject: pkix.Name{CommonName: mark}}}
	})
	add(Leaked, "a client's certificate", plain, certificate)
	add(Poisoned, "another server's name in the TLS handshake", plain,
		secure(func(_ *http.Request, s *tls.ConnectionState) { s.ServerName = mark + ".example" }))
	add(Poisoned, "no server's name in the TLS handshake", plain,
		secure(func(_ *http.Request, s *tls.ConnectionState) { s.ServerName = "" }))
	add(Poisoned, "another host by TLS for the same server", plain,
		secure(func(r *http.Request, _ *tls.ConnectionState) { r.Host = mark + ".example" }))
	add(Poisoned, "the version HTTP/2", nil, func(r *http.Request) {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	})
	add(Poisoned, "the version HTTP/1.0", nil, func(r *http.Request) {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
	})
	add(Poisoned, "the address of the client", nil, func(r *http.Request) {
		r.RemoteAddr = "[2001:db8::66]:4321"
	})
	return all
}

func withoutPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i]
	}
	return host
}

func methods() (all []variation) {
	add := func(what string, change func(*http.Request)) {
		all = append(all, variation{kind: Poisoned, what: what, advice: adviseBody, change: change})
	}
	add("the method HEAD", func(r *http.Request) { r.Method = http.MethodHead })
	all[0].oneWay = true
	add("the method OPTIONS", func(r *http.Request) { r.Method = http.MethodOptions })
	body := func(r *http.Request, text string) {
		r.Header["Content-Type"] = []string{"application/x-www-form-urlencoded"}
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
	add("a GET with a body", func(r *http.Request) {
		body(r, mark+"="+mark+"&q="+mark+"&id="+mark)
	})
	add("a POST that an override makes a GET", func(r *http.Request) {
		r.Method = http.MethodPost
		r.Header["X-Http-Method-Override"] = []string{"GET"}
		body(r, "_method=GET&q="+mark+"&id="+mark)
	})
	return all
}

// lines returns variations with two lines of a field, which are compared with one line that has
// both values, and with the two lines in the other order. Header.Get sees only the first line.
func (c Config) lines(sample *http.Request) (all []variation) {
	values := map[string][2]string{
		"Accept-Language": {"de", "en"}, "Accept-Encoding": {"gzip", "identity"},
		"Accept":          {"application/json", "text/html"},
		"X-Forwarded-For": {"192.0.2.66", "192.0.2.67"}, "User-Agent": {mark, "other"},
		"Origin": {"https://" + mark + ".example", "https://other.example"},
	}
	for _, name := range c.Fields {
		values[http.CanonicalHeaderKey(name)] = [2]string{mark, "other"}
	}
	for name := range sample.Header {
		if _, there := values[name]; !there && name != "Cookie" && name != "Authorization" {
			values[name] = [2]string{mark, "other"}
		}
	}
	for _, name := range sorted(values) {
		a, b := values[name][0], values[name][1]
		for _, both := range [][2]string{{a, b}, {b, a}} {
			for _, glue := range []string{", ", ","} {
				all = append(all, variation{
					kind:   Poisoned,
					what:   "two lines of " + name + " in the place of one with both values",
					advice: adviseLines,
					victim: set(name, both[0]+glue+both[1]),
					change: func(r *http.Request) { r.Header[name] = []string{both[0], both[1]} },
				})
			}
			all = append(all, variation{
				kind: Poisoned, what: "the order of two lines of " + name, advice: adviseLines,
				victim: func(r *http.Request) { r.Header[name] = []string{both[0], both[1]} },
				change: func(r *http.Request) { r.Header[name] = []string{both[1], both[0]} },
			})
		}
	}
	return all
}

func queries(u *url.URL) (all []variation) {
	seen := map[string]bool{u.RawQuery: true}
	add := func(what, query string) {
		if !seen[query] {
			seen[query] = true
			all = append(all,
				variation{kind: Poisoned, what: what, advice: adviseURL, change: func(
					r *http.Request,
				) {
					r.URL.RawQuery = query
				}})
		}
	}
	and := func(more string) string { return strings.TrimPrefix(u.RawQuery+"&"+more, "&") }
	add("an unknown parameter", and(mark+"="+mark))
	for _, name := range []string{
		"q", "id", "page", "lang", "callback", "utm_source", "utm_content", "fbclid", "_", "debug",
		"format", "_method",
	} {
		add("the parameter "+name, and(name+"="+mark))
	}
	if u.RawQuery == "" {
		return all
	}
	add("no query", "")
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		replaced := func(pair string) string {
			others := slices.Clone(pairs)
			others[i] = pair
			return strings.Join(others, "&")
		}
		add("another value of the parameter "+name, replaced(name+"="+mark))
		add("a second value of the parameter "+name, and(name+"="+mark))
		add("a second value before that of the parameter "+name, name+"="+mark+"&"+u.RawQuery)
		add("the parameter "+name+" in capitals", replaced(strings.ToUpper(name)+"="+value))
		add("the parameter "+name+" without its value", replaced(name))
		add("the parameter "+name+" left out",
			strings.Join(slices.Delete(slices.Clone(pairs), i, i+1), "&"))
		add("the parameter "+name+", encoded", replaced(encoded(name)+"="+encoded(value)))
		add("a ; in the place of & behind "+name, and(name+"="+value+";"+name+"="+mark))
	}
	slices.Reverse(pairs)
	add("the order of the parameters", strings.Join(pairs, "&"))
	return all
}

// encoded returns s with its first letter written as %XX, which means the same.
func encoded(s string) string {
	if s == "" || s[0] == '%' {
		return s
	}
	const hex = "0123456789ABCDEF"
	return "%" + string(hex[s[0]>>4]) + string(hex[s[0]&15]) + s[1:]
}

func paths(u *url.URL) (all []variation) {
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	seen := map[string]bool{path: true}
	add := func(what, escaped string) {
		plain, err := url.PathUnescape(escaped)
		if seen[escaped] || escaped == "" || err != nil {
			return
		}
		seen[escaped] = true
		all = append(all,
			variation{kind: Poisoned, what: what, advice: adviseURL, change: func(r *http.Request) {
				r.URL.Path, r.URL.RawPath = plain, escaped
			}})
	}
	add("another path", strings.TrimSuffix(path, "/")+"/"+mark)
	add("a slash at the end", path+"/")
	add("no slash at the end", strings.TrimSuffix(path, "/"))
	add("a doubled slash", "/"+path)
	add("dots in the path", "/."+path)
	add("dots that lead back", "/"+mark+"/.."+path)
	add("encoded dots that lead back", "/"+mark+"/%2e%2e"+path)
	add("an encoded slash", "/%2f"+strings.TrimPrefix(path, "/"))
	add("an encoded letter", "/"+encoded(strings.TrimPrefix(path, "/")))
	add("the path in capitals", strings.ToUpper(path))
	add("a parameter behind ;", path+";"+mark)
	add("a suffix that looks static", path+"/"+mark+".css")
	return all
}
