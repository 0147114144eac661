package middleware

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// keyer makes the key of the resource that a request is for.
//
// The key is the URL as the client sent it. It is taken from the request line and not from
// Request.URL, so that handlers below http.StripPrefix don't share different resources. If
// Request.URL differs from the request line, it is added to the key. Nothing in the key is decoded,
// reordered or made lower case, because a handler reads Request.Host as it was sent, with its port,
// and may write redirects with it. Two keys for one resource cost one more run of the handler. One
// key for two requests that a handler can tell apart would cause a wrong response.
type keyer struct {
	forwardedHost, forwardedProto bool
	// Options.Shape is set: a router in front may have read another path.
	shaped bool
	varyBy func(*http.Request) string
}

// keySeparator separates the parts of a key. It can't occur in a URL, because URLs with control
// bytes have no key.
const keySeparator = "\x1f"

func newKeyer(o Options) keyer {
	trusted := func(field string) bool {
		return slices.ContainsFunc(o.TrustForwarded, func(name string) bool {
			return strings.EqualFold(name, field)
		})
	}
	return keyer{forwardedHost: trusted(forwardedHost), forwardedProto: trusted(forwardedProto),
		shaped: o.Shape != nil, varyBy: o.VaryBy}
}

// ok reports whether the request has a key. A request without a key is not cached, because it names
// no resource (CONNECT, *), or because it isn't certain which resource it names.
func (k keyer) ok(r *http.Request) bool {
	_, ok := k.target(r)
	return ok
}

// key returns the request's key, or "" if it has none.
func (k keyer) key(r *http.Request) string {
	t, ok := k.target(r)
	if !ok {
		return ""
	}
	var group string
	if k.varyBy != nil {
		group = k.varyBy(r)
	}
	var b strings.Builder
	b.Grow(len(t.scheme) + len("://") + len(t.host) + len(t.uri) + len(t.line) + len(t.inside) +
		len(t.beside) + len(t.server) + len(t.routed) + len(group) + 4)
	b.WriteString(t.scheme)
	b.WriteString("://")
	b.WriteString(t.host)
	b.WriteString(t.uri)
	if t.line != "" {
		b.WriteString(keySeparator + "l")
		b.WriteString(t.line)
	}
	if t.rewritten {
		b.WriteString(keySeparator + "i")
		b.WriteString(t.inside)
	}
	if t.beside != "" {
		b.WriteString(keySeparator + "f")
		b.WriteString(t.beside)
	}
	if t.server != "" {
		b.WriteString(keySeparator + "s")
		b.WriteString(t.server)
	}
	if t.routed != "" {
		b.WriteString(keySeparator + "r")
		b.WriteString(t.routed)
	}
	if k.varyBy != nil { // varyBy's string must be the last part, because nothing marks its end
		b.WriteString(keySeparator + "g")
		b.WriteString(group)
	}
	return b.String()
}

// target has the parts of a request that identify its resource.
type target struct {
	scheme string // http or https
	host   string // as it was sent, or as the nearest proxy wrote it if its field is trusted
	uri    string // path and query as sent; either "" or a text that begins with / or ?

	line      string // the request line's target if that is a whole URL
	rewritten bool   // the handler sees another URL
	inside    string // the URL that the handler sees, if it is another one
	beside    string // with trusted fields: see keyer.beside
	server    string // the TLS server name of the connection, if Host has another name
	// With Options.Shape: the values that a router in front has taken from the path.
	routed string
}

func (k keyer) target(r *http.Request) (t target, ok bool) {
	u := r.URL
	if r.Method == http.MethodConnect || u == nil || u.Opaque != "" || u.User != nil ||
		u.Fragment != "" {
		return t, false
	}
	if t.scheme, ok = k.scheme(r); !ok {
		return t, false
	}
	t.host = r.Host
	if k.forwardedHost {
		if last := nearest(r.Header[forwardedHost]); last != nil {
			t.host = *last
		}
	}
	if !isHost(t.host) {
		return t, false
	}
	t.beside = k.beside(r)
	t.server = server(r)
	if k.shaped {
		t.routed = routed(r)
	}
	switch t.uri = r.RequestURI; {
	case t.uri == "": // the request was not read from a connection
		t.uri = pathAndQuery(r)
	case t.uri[0] != '/':
		// A whole URL in the request line (RFC 9112, section 3.2.2) replaces Host: net/http does
		// this. Its scheme must be that of the connection. Otherwise a client that uses http could
		// store responses that clients that use https get. The handler sees the URL in RequestURI
		// and URL, so the request has a key of its own.
		if !strings.EqualFold(u.Scheme, t.scheme) || !strings.EqualFold(u.Host, r.Host) {
			return t, false
		}
		t.line = t.uri
		_, rest, found := strings.Cut(t.uri, "://")
		if !found {
			return t, false
		}
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			t.uri = rest[i:]
		} else {
			t.uri = ""
		}
		if t.rewritten = !received(r, t.uri); t.rewritten {
			t.inside = pathAndQuery(r)
		}
	case u.Scheme != "" || u.Host != "":
		t.rewritten, t.inside = true, u.Scheme+"://"+u.Host+pathAndQuery(r)
	case !received(r, t.uri):
		t.rewritten, t.inside = true, pathAndQuery(r)
	}
	if t.uri != "" && t.uri[0] != '/' && t.uri[0] != '?' {
		return t, false
	}
	return t, !hasControl(t.uri) && !hasControl(t.inside) && !hasControl(t.beside) &&
		!hasControl(t.server)
}

// If a proxy's fields are trusted, a handler can read more than the URL in the key, which has only
// the values that the nearest proxy wrote. beside returns these further values: the scheme and host
// of the connection itself, and each line of the fields. It returns "" if the request has no
// trusted field.
func (k keyer) beside(r *http.Request) string {
	if !k.forwardedHost && !k.forwardedProto {
		return ""
	}
	hosts, protos := r.Header[forwardedHost], r.Header[forwardedProto]
	if !k.forwardedHost {
		hosts = nil
	}
	if !k.forwardedProto {
		protos = nil
	}
	if len(hosts) == 0 && len(protos) == 0 {
		return ""
	}
	b := make([]byte, 0, 64)
	b = append(b, ownScheme(r)...)
	b = appendSized(b, r.Host)
	return string(appendLines(appendLines(b, hosts), protos))
}

// server returns the name in the TLS handshake if it differs from Host, or else "". A client
// chooses both names, and a handler can read both. With HTTP/2, one connection may have requests
// for several hosts.
func server(r *http.Request) string {
	if r.TLS == nil {
		return ""
	}
	name := r.TLS.ServerName
	if rest, ok := strings.CutPrefix(r.Host, name); ok && name != "" &&
		(rest == "" || rest[0] == ':') {
		return ""
	}
	return string(appendSized(nil, name))
}

// routed returns the values that http.ServeMux or chi has taken from the path before the request
// came to the cache. Options.Shape changes the path but not these values, which the handler can
// read and chi's inner routers use. The names of the values aren't included, because a route always
// has the same names.
func routed(r *http.Request) string {
	var b []byte
	pattern := r.Pattern
	for {
		_, rest, found := strings.Cut(pattern, "{")
		name, rest, closed := strings.Cut(rest, "}")
		if !found || !closed {
			break
		}
		pattern = rest
		if value := r.PathValue(strings.TrimSuffix(name, "...")); value != "" {
			b = appendSized(b, value)
		}
	}
	if route := chi.RouteContext(r.Context()); route != nil &&
		(route.RoutePath != "" || len(route.URLParams.Values) > 0) {
		b = appendLines(appendSized(b, route.RoutePath), route.URLParams.Values)
	}
	return string(b)
}

// scheme returns the scheme that the nearest proxy has written if its field is trusted, or else the
// scheme of the connection.
func (k keyer) scheme(r *http.Request) (string, bool) {
	if k.forwardedProto {
		if last := nearest(r.Header[forwardedProto]); last != nil {
			switch {
			case strings.EqualFold(*last, "https"):
				return "https", true
			case strings.EqualFold(*last, "http"):
				return "http", true
			}
			return "", false
		}
	}
	return ownScheme(r), true
}

// ownScheme returns the scheme of the connection.
func ownScheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// nearest returns the element of a forwarded field that the nearest proxy wrote, or nil. A proxy
// adds its element at the end or replaces the field. All elements before the last come from other
// proxies or from the client.
func nearest(lines []string) *string {
	if len(lines) == 0 {
		return nil
	}
	last := lines[len(lines)-1]
	last = trimOWS(last[strings.LastIndexByte(last, ',')+1:])
	return &last
}

// received reports whether Request.URL has the path and query of the request line.
func received(r *http.Request, uri string) bool {
	path, query, has := strings.Cut(uri, "?")
	u := r.URL
	if u.RawQuery != query || has != (u.ForceQuery || u.RawQuery != "") {
		return false
	}
	if u.RawPath == "" && u.Path == path && strings.IndexByte(path, '%') < 0 {
		return true // the usual case; EscapedPath would look at each byte
	}
	return u.EscapedPath() == path
}

// pathAndQuery returns the path and query of Request.URL as they would be written in a request
// line.
func pathAndQuery(r *http.Request) string {
	u := r.URL
	if u.RawQuery == "" && !u.ForceQuery {
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + u.RawQuery
}

// isHost reports whether a host, perhaps with a port, is a name or address as it is written in
// certificates and DNS. Requests with any other Host are not cached.
func isHost(s string) bool {
	_, _, ok := splitHost(s)
	return ok
}

// splitHost returns a host's name or address, and its port: "" or a colon, perhaps followed by
// digits.
func splitHost(host string) (name, port string, ok bool) {
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 2 {
			return "", "", false
		}
		for _, c := range []byte(host[1:end]) {
			if !isHex(c) && c != ':' && c != '.' {
				return "", "", false
			}
		}
		if name, port = host[:end+1], host[end+1:]; port != "" && port[0] != ':' {
			return "", "", false
		}
	} else {
		name = host
		if i := strings.IndexByte(host, ':'); i >= 0 {
			name, port = host[:i], host[i:]
		}
		for _, c := range []byte(name) {
			if !isAlphanumeric(c) && c != '-' && c != '.' && c != '_' {
				return "", "", false
			}
		}
	}
	if name == "" || len(port) > len(":65535") {
		return "", "", false
	}
	for i := 1; i < len(port); i++ {
		if port[i] < '0' || port[i] > '9' {
			return "", "", false
		}
	}
	return name, port, true
}

// oneHost returns one spelling for all spellings of a host that reach the same server: in lower
// case, with an address in its shortest form, without a dot at the end, and without the default
// ports of http and https. It is used to compare hosts in purges and in Options.Hosts, but not in
// keys, because a handler can tell these spellings apart. Both default ports are removed for either
// scheme, because behind a proxy that ends TLS a request for port 443 uses http.
func oneHost(host string) (string, bool) {
	name, port, ok := splitHost(host)
	if !ok {
		return "", false
	}
	if name[0] == '[' {
		if addr, err := netip.ParseAddr(name[1 : len(name)-1]); err == nil {
			name = "[" + addr.String() + "]"
		}
	} else if without := strings.TrimSuffix(name, "."); without != "" {
		name = without
	}
	switch port = strings.TrimLeft(strings.TrimPrefix(port, ":"), "0"); port {
	case "", "80", "443":
	default:
		name += ":" + port
	}
	return strings.ToLower(name), true
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
