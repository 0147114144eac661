package middleware

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// Purges find a stored response by its tags. The first byte of a tag says what the tag is made of:
//
//	u  host, path and query
//	p  path and query, on every host
//	h  host
//	d  a path or the part before one of its slashes, on every host
//	s  a surrogate key
//
// If the first byte is a capital letter, the rest is a hash, because tags of package cacheguard
// have at most 255 bytes. The scheme isn't part of any tag, because behind a proxy that ends TLS
// all requests use http, but the people who purge know the public URLs. Before URLs are compared,
// they are normalized as in RFC 3986, sections 6.2.2.1 and 6.2.2.2, and their hosts by oneHost. So
// a purge of one spelling of a URL purges all spellings, although each spelling has its own key.
// Dots in paths stay.
const (
	tagURL       = "u"
	tagPath      = "p"
	tagHost      = "h"
	tagPrefix    = "d"
	tagSurrogate = "s"
)

const (
	mostTags       = 64  // the core's
	longestTag     = 254 // the core's, for soft ones
	mostLevels     = 8
	mostURLTags    = 3 + mostLevels
	mostSoftTags   = 2
	mostSurrogates = mostTags - mostURLTags - mostSoftTags
)

// tagsOf returns the tags that a response gets from its key, at most mostURLTags.
func tagsOf(key string) []string {
	url, _, _ := strings.Cut(key, keySeparator)
	_, rest, _ := strings.Cut(url, "://")
	host, uri := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, uri = rest[:i], rest[i:]
	}
	host, _ = oneHost(host)
	uri = normalURI(uri)
	tags := append(make([]string, 0, mostURLTags), tag(tagURL, host+uri), tag(tagPath, uri),
		tag(tagHost, host))
	path, _, _ := strings.Cut(uri, "?")
	levels := 0
	for i := 1; i <= len(path) && levels < mostLevels; i++ {
		if (i == len(path) || path[i] == '/') && path[i-1] != '/' {
			tags = append(tags, tag(tagPrefix, path[:i]))
			levels++
		}
	}
	return tags
}

// urlTag returns the tag for an argument of Purge: a whole URL, or a path, with or without a query,
// for every host.
func urlTag(url string) (string, error) {
	host, uri, err := splitURL(url)
	if err != nil {
		return "", err
	}
	if host == "" {
		return tag(tagPath, normalURI(uri)), nil
	}
	return tag(tagURL, host+normalURI(uri)), nil
}

// prefixTag returns the tag for an argument of PurgePrefix, or "" for everything. A path matches
// whole segments, and a slash at its end makes no difference: "/products" and "/products/" match
// /products, /products?page=2 and /products/1, on every host, but not /products2.
func prefixTag(prefix string) (string, error) {
	host, uri, err := splitURL(prefix)
	if err != nil {
		return "", err
	}
	if strings.IndexByte(uri, '?') >= 0 {
		return "", fmt.Errorf(
			"middleware: prefix %q has a query; give the path before it, or Purge the URL", prefix)
	}
	path := strings.TrimRight(normalURI(uri), "/")
	switch {
	case host != "" && path == "":
		return tag(tagHost, host), nil
	case host != "":
		return "", fmt.Errorf(
			"middleware: prefix %q has a host and a path; give the path alone, for every host, or the "+
				"host alone, for all its paths", prefix)
	case path == "":
		return "", nil
	}
	levels := 0
	for i := 1; i <= len(path); i++ {
		if (i == len(path) || path[i] == '/') && path[i-1] != '/' {
			levels++
		}
	}
	if levels > mostLevels {
		return "", fmt.Errorf("middleware: prefix %q has %d segments; %d are possible", prefix,
			levels, mostLevels)
	}
	return tag(tagPrefix, path), nil
}

// splitURL returns the host of a URL, or "" if it has none, and the path with the query.
func splitURL(url string) (host, uri string, err error) {
	wrong := func(why string) error {
		return fmt.Errorf(
			`middleware: %q %s; possible are "/path", "/path?query" and "https://host/path?query"`,
			url, why)
	}
	switch {
	case hasControl(url):
		return "", "", wrong("has control characters")
	case strings.IndexByte(url, '#') >= 0:
		return "", "", wrong("has a fragment, or a # that must be written %23")
	case strings.HasPrefix(url, "//"):
		return "", "", wrong("could be a host or a path")
	case strings.HasPrefix(url, "/"):
		return "", url, nil
	}
	scheme, rest, found := strings.Cut(url, "://")
	scheme = strings.ToLower(scheme)
	if !found || scheme != "http" && scheme != "https" {
		return "", "", wrong("is neither a path nor a URL of http or https")
	}
	host = rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, uri = rest[:i], rest[i:]
	}
	host, ok := oneHost(host)
	if !ok {
		return "", "", wrong("has no host that requests could come for")
	}
	return host, uri, nil
}

// normalURI returns one spelling for all equivalent spellings of a path and query: %XX is in
// capitals and only used where it must be, an empty path becomes a slash, and an empty query is
// removed.
func normalURI(uri string) string {
	if i := strings.IndexByte(uri, '?'); i >= 0 && i == len(uri)-1 {
		uri = uri[:i]
	}
	if uri == "" || uri[0] == '?' {
		uri = "/" + uri
	}
	normal := true
	for i := range len(uri) {
		if uri[i] == '%' || !isURI(uri[i]) {
			normal = false
			break
		}
	}
	if normal {
		return uri
	}
	b := make([]byte, 0, len(uri)+16)
	for i := 0; i < len(uri); i++ {
		c := uri[i]
		switch {
		case c == '%' && i+2 < len(uri) && isHex(uri[i+1]) && isHex(uri[i+2]):
			c = unhex(uri[i+1])<<4 | unhex(uri[i+2])
			i += 2
			if isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 {
				b = append(b, c)
				continue
			}
			b = appendEscaped(b, c)
		case isURI(c):
			b = append(b, c)
		default: // also a % without two hexadecimal digits
			b = appendEscaped(b, c)
		}
	}
	return string(b)
}

// isURI reports whether a byte may be part of a path or query without being escaped.
func isURI(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("-._~!$&'()*+,;=:@/?", c) >= 0
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	default:
		return c - 'a' + 10
	}
}

func appendEscaped(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}

// surrogateTags returns the tags in a response's Cache-Tag (separated by commas) and Surrogate-Key
// (separated by spaces), each once. It returns false if a stored response can't have so many tags.
// If the response were stored with some of its tags only, a purge by the other tags would not
// remove it.
func surrogateTags(h http.Header) (tags []string, ok bool) {
	add := func(key string) bool {
		if key = trimOWS(key); key == "" {
			return true
		}
		t := surrogateTag(key)
		for _, have := range tags {
			if have == t {
				return true
			}
		}
		tags = append(tags, t)
		return len(tags) <= mostSurrogates
	}
	for _, line := range h["Cache-Tag"] {
		for key := range strings.SplitSeq(line, ",") {
			if !add(key) {
				return nil, false
			}
		}
	}
	for _, line := range h["Surrogate-Key"] {
		for key := range strings.FieldsSeq(line) {
			if !add(key) {
				return nil, false
			}
		}
	}
	return tags, true
}

// surrogateTag returns the tag of a surrogate key. Keys that differ in case are different.
func surrogateTag(key string) string { return tag(tagSurrogate, trimOWS(key)) }

func tag(kind, what string) string {
	if len(kind)+len(what) <= longestTag {
		return kind + what
	}
	sum := sha256.Sum256([]byte(what))
	return strings.ToUpper(kind) + hex.EncodeToString(sum[:])
}

// trimOWS removes the whitespace that may stand around the members of a field (RFC 9110, section
// 5.6.3).
func trimOWS(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
