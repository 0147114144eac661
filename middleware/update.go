package middleware

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// storedHeader returns the part of a response's header that is stored: a copy with canonical names,
// without the fields for one connection (RFC 9111, section 3.1), without the fields in drop, and
// without Age, which is stored as a duration. Control characters in values become spaces, as
// net/http does with line breaks. Keys that are not field names are left out.
func storedHeader(h http.Header, drop []string) http.Header {
	dropped := map[string]bool{}
	for _, name := range drop {
		dropped[http.CanonicalHeaderKey(name)] = true
	}
	for name, lines := range h {
		if !strings.EqualFold(name, "Connection") {
			continue
		}
		for _, line := range lines {
			for option := range strings.SplitSeq(line, ",") {
				dropped[http.CanonicalHeaderKey(trimOWS(option))] = true
			}
		}
	}
	total := 0
	for _, values := range h {
		total += len(values)
	}
	room := make([]string, 0, total)
	kept := make(http.Header, len(h))
	for _, key := range sortedNames(h) {
		name := http.CanonicalHeaderKey(key)
		if !isToken(key) || !storable(name) || dropped[name] {
			continue
		}
		values := h[key]
		// An empty Content-Type tells the server not to guess it.
		if len(values) == 0 && name != "Content-Type" {
			continue
		}
		start := len(room)
		for _, value := range values {
			room = append(room, cleanValue(value))
		}
		// The name is spelled in two ways, which is rare, so an allocation is acceptable.
		if earlier, twice := kept[name]; twice {
			kept[name] = slices.Concat(earlier, room[start:])
			continue
		}
		kept[name] = room[start:len(room):len(room)]
	}
	return kept
}

// ownFields returns the fields of a header that the handler has set. It leaves out the fields that
// the header had before the handler was called, because a layer in front has set them for one
// client. If the handler has added lines to one of these fields, ownFields returns only the added
// lines. Vary is an exception, because it is only useful as a whole. Both headers are canonical.
func ownFields(all, before http.Header) http.Header {
	if len(before) == 0 {
		return all
	}
	own := make(http.Header, len(all))
	for name, values := range all {
		theirs := before[name]
		switch {
		case len(theirs) == 0 || len(values) < len(theirs) ||
			!slices.Equal(values[:len(theirs)], theirs):
			own[name] = values
		case len(values) == len(theirs): // untouched
		case name == "Vary":
			own[name] = values
		default:
			own[name] = values[len(theirs):]
		}
	}
	return own
}

// storable reports whether a field with this canonical name belongs to the response itself, and not
// to one connection or one path through proxies.
func storable(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
		"Proxy-Authentication-Info",
		"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Age":
		return false
	}
	return true
}

// cleanValue returns a field's value in a form that can be sent.
func cleanValue(value string) string {
	if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		b := []byte(value)
		for i, c := range b {
			if c < ' ' && c != '\t' || c == 0x7f {
				b[i] = ' '
			}
		}
		value = string(b)
	}
	return trimOWS(value)
}

func sortedNames(h http.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// updated returns the response with the fields of a 304 that answered a request with its validators
// (RFC 9111, sections 3.2 and 4.3.4), or nil if the 304 is about another representation. It doesn't
// change res, because others may be reading it. Age, vary and selected remain those of res.
func (res *response) updated(from304 http.Header, drop []string) *response {
	update := storedHeader(from304, drop)
	if !res.sameAs(update) {
		return nil
	}
	header := make(http.Header, len(res.header)+len(update))
	for name, values := range res.header {
		header[name] = values
	}
	for name, values := range update {
		if ofContent(name) || len(values) == 0 {
			continue
		}
		header[name] = values
	}
	changed := *res
	changed.header = header
	return &changed
}

// ofContent reports whether a field describes the bytes of a body. A 304 has no body, so it must
// not change these fields. RFC 9111, section 3.2, names only Content-Length. But the stored body
// was made with the old values of the other fields, too.
func ofContent(name string) bool {
	switch name {
	case "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range", "Content-Digest",
		"Etag":
		return true
	}
	return false
}

// sameAs reports whether a 304 with this header can be about the response. It can if each validator
// that both have is equal. If both have an ETag, sameAs ignores the date.
func (res *response) sameAs(from304 http.Header) bool {
	if mine, its := res.header.Get("Etag"), from304.Get("Etag"); mine != "" && its != "" {
		if isWeak(its) {
			return opaque(mine) == opaque(its)
		}
		return mine == its
	}
	mine, ok := parseHTTPDate(res.header["Last-Modified"])
	its, alsoOK := parseHTTPDate(from304["Last-Modified"])
	return !ok || !alsoOK || mine.Equal(its)
}

// validators replaces the conditions in a request's header with conditions that ask whether the
// response is still good. If res is nil it only removes the client's conditions. It also removes
// Range, because a whole response is wanted.
func (res *response) validators(r *http.Request) {
	h := r.Header
	for _, name := range []string{
		"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range",
		"Range",
	} {
		delete(h, name)
	}
	if res == nil {
		return
	}
	if tag := res.header.Get("Etag"); tag != "" {
		h["If-None-Match"] = []string{tag}
	}
	if res.byDate(r) {
		h["If-Modified-Since"] = []string{res.header["Last-Modified"][0]}
	}
}

// parseHTTPDate reads a field with one date, in any of the three forms of RFC 9110, section 5.6.7.
func parseHTTPDate(lines []string) (time.Time, bool) {
	if len(lines) != 1 {
		return time.Time{}, false
	}
	t, err := http.ParseTime(lines[0])
	return t, err == nil
}
