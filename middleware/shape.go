package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// shaper applies Options.Hosts, IgnoreQuery, KeepQuery, Normalize and Shape. If requests are
// written differently but mean the same to the user, these options make them equal. The shaper
// changes the request itself, before the cache makes its key and before the handler gets it. So the
// handler can't read the parts that the shaper has removed, and no client can bring these parts
// into the responses of other clients.
type shaper struct {
	hosts        map[string]string // by oneHost
	ignore, keep []string          // names of query fields, perhaps with * at the end
	normal       []string          // canonical names of fields
	forwarded    bool              // X-Forwarded-Host is trusted, so hosts apply to it, too
	then         func(*http.Request)
}

// newShaper returns the shaper for these options, or nil if they change no request. err has all
// errors of the options, joined.
func newShaper(o Options) (*shaper, error) {
	if len(o.Hosts) == 0 && len(o.IgnoreQuery) == 0 && o.KeepQuery == nil &&
		len(o.Normalize) == 0 && o.Shape == nil {
		return nil, nil
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("middleware: Options."+format, args...))
	}
	s := &shaper{
		hosts: map[string]string{}, ignore: o.IgnoreQuery, keep: o.KeepQuery, then: o.Shape,
	}
	for from, to := range o.Hosts {
		name, ok := oneHost(from)
		if !ok || !isHost(to) {
			wrong("Hosts has %q for %q, both must be hosts, perhaps with a port", to, from)
		}
		s.hosts[name] = to
	}
	for from, to := range o.Hosts {
		if name, ok := oneHost(to); ok && s.hosts[name] != "" && s.hosts[name] != to {
			wrong("Hosts maps %q to %q, but %q is mapped to another host itself", from, to, to)
		}
	}
	if len(o.IgnoreQuery) > 0 && o.KeepQuery != nil {
		wrong("IgnoreQuery and Options.KeepQuery exclude each other")
	}
	for _, name := range o.Normalize {
		switch name = http.CanonicalHeaderKey(name); {
		case !isToken(name), name == "Cookie", name == "Authorization",
			name == "Proxy-Authorization":
			wrong("Normalize has %q, which is no list", name)
		default:
			s.normal = append(s.normal, name)
		}
	}
	s.forwarded = slices.ContainsFunc(o.TrustForwarded, func(name string) bool {
		return strings.EqualFold(name, forwardedHost)
	})
	return s, errors.Join(errs...)
}

// request returns the request with the options applied: r itself if they change nothing and there
// is no Options.Shape, or else a copy. s may be nil.
func (s *shaper) request(r *http.Request) *http.Request {
	if s == nil {
		return r
	}
	shaped, cloned := r, false
	change := func() *http.Request {
		if shaped == r {
			shaped = r.WithContext(r.Context()) // a shallow copy
		}
		return shaped
	}
	header := func() http.Header {
		if !cloned {
			change().Header, cloned = r.Header.Clone(), true
		}
		return shaped.Header
	}
	if host := s.host(r.Host); host != r.Host {
		change().Host = host
		if slices.Equal(r.Header["Host"], []string{r.Host}) { // see secondHost
			header()["Host"] = []string{host}
		}
	}
	if r.TLS != nil {
		if name := s.host(r.TLS.ServerName); name != r.TLS.ServerName {
			inner := *r.TLS
			inner.ServerName, _, _ = splitHost(name)
			change().TLS = &inner
		}
	}
	if lines := r.Header[forwardedHost]; s.forwarded && len(lines) == 1 {
		if host := s.host(lines[0]); host != lines[0] {
			header()[forwardedHost] = []string{host}
		}
	}
	if uri := s.uri(r.RequestURI); uri != r.RequestURI {
		change().RequestURI = uri
	}
	if u := r.URL; u != nil && (u.RawQuery != "" || u.ForceQuery) {
		if query := s.query(u.RawQuery); query != u.RawQuery || u.ForceQuery && s.filters() {
			inner := *u
			inner.RawQuery, inner.ForceQuery = query, false
			change().URL = &inner
			shaped.Form = nil
		}
	}
	for _, name := range s.normal {
		if lines := r.Header[name]; len(lines) > 0 {
			if normal := normalField(name, lines); len(lines) > 1 || normal != lines[0] {
				header()[name] = []string{normal}
			}
		}
	}
	if s.then != nil {
		header()
		s.free(shaped)
	}
	return shaped
}

// free lets Options.Shape change the copy. If the function changes the URL, free also changes
// RequestURI, because the key is made from it.
func (s *shaper) free(shaped *http.Request) {
	before := *shaped.URL
	inner := before
	shaped.URL = &inner
	s.then(shaped)
	if now := shaped.URL; now != nil && (now.Path != before.Path || now.RawPath != before.RawPath ||
		now.RawQuery != before.RawQuery || now.ForceQuery != before.ForceQuery) {
		shaped.RequestURI, shaped.Form = pathAndQuery(shaped), nil
	}
}

// host returns the host that Options.Hosts has for this host, or else the host itself.
func (s *shaper) host(host string) string {
	if len(s.hosts) == 0 {
		return host
	}
	if name, ok := oneHost(host); ok && s.hosts[name] != "" {
		return s.hosts[name]
	}
	return host
}

// url returns the URL that keys have for a URL that is passed to Purge.
func (s *shaper) url(whole string) string {
	if s == nil {
		return whole
	}
	scheme, rest, found := strings.Cut(whole, "://")
	if !found || strings.HasPrefix(whole, "/") {
		return s.uri(whole)
	}
	host, uri := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, uri = rest[:i], rest[i:]
	}
	return scheme + "://" + s.host(host) + s.uri(uri)
}

// uri returns a request's target without the query fields that the options ignore.
func (s *shaper) uri(uri string) string {
	path, query, has := strings.Cut(uri, "?")
	if !has || !s.filters() {
		return uri
	}
	if query = s.query(query); query == "" {
		return path
	}
	return path + "?" + query
}

func (s *shaper) filters() bool { return len(s.ignore) > 0 || s.keep != nil }

// query returns a query without the ignored fields. Order and spelling of the other fields stay as
// they are.
func (s *shaper) query(query string) string {
	if query == "" || !s.filters() {
		return query
	}
	var b strings.Builder
	first := true
	for field := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(field, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if s.keep != nil && !named(s.keep, name) || named(s.ignore, name) {
			continue
		}
		if !first {
			b.WriteByte('&')
		}
		first = false
		b.WriteString(field)
	}
	return b.String()
}

// named reports whether a pattern matches the name: it equals the name, or it ends with * and the
// name begins with the rest.
func named(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if begin, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, begin)
		}
		return pattern == name
	})
}

// normalField returns one spelling for the lines of a field that is a list. Lists with the same
// members in the same order get the same spelling. In Accept, Accept-Encoding and Accept-Language
// lists with the same meaning get it, too.
func normalField(name string, lines []string) string {
	all := strings.Join(lines, ",")
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language":
		if normal, ok := weighted(name, all); ok {
			return normal
		}
	}
	return withoutSpace(all)
}
