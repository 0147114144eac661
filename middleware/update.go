package middleware

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// storedHeader returns what is kept of a response's header: a copy with canonical names, without
// the fields that are for one connection (RFC 9111, section 3.1), those of drop, and Age, which is
// kept as a duration. Control characters in values become spaces, as net/http has it with line
// breaks, and keys that are no names go.
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
		if len(values) == 0 && name != "Content-Type" { // that one says: don't guess it
			continue
		}
		start := len(room)
		for _, value := range values {
			room = append(room, cleanValue(value))
		}
		if earlier, twice := kept[name]; twice { // written in two ways; rare enough to pay for
			kept[name] = slices.Concat(earlier, room[start:])
			continue
		}
		kept[name] = room[start:len(room):len(room)]
	}
	return kept
}

// ownFields are the fields of a header that a handler has made, without those that were there
// before: somebody in front said them to one client. If the handler has added to one, what it has
// added is its own, but for Vary, which is of use only as a whole. Both headers are canonical.
func ownFields(all, before http.Header) http.Header {
	if len(before) == 0 {
		return all
	}
	own := make(http.Header, len(all))
	for name, values := range all {
		theirs := before[name]
		switch {
		case len(theirs) == 0 || len(values) < len(theirs) || !slices.Equal(values[:len(theirs)], theirs):
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

// storable reports whether a field of this canonical name is about the response itself, and not
// about one connection or one way through proxies.
func storable(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authentication-Info",
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

// updated returns the response with the fields of a 304 that was the answer to its validators (RFC
// 9111, sections 3.2 and 4.3.4), or nil if the 304 is about another representation. It leaves res
// alone, which others may be reading. Age, vary and selected remain those of res.
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

// ofContent reports whether a field describes the very bytes of a body, which a 304 doesn't have.
// RFC 9111, section 3.2, leaves it at Content-Length; but the body that stays was made with the
// others as they were.
func ofContent(name string) bool {
	switch name {
	case "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range", "Content-Digest", "Etag":
		return true
	}
	return false
}

// sameAs reports whether a 304 with this header can be about the response: its validators are the
// response's, as far as both have them. A tag decides over a date.
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

// validators makes the conditions of a request's header those that ask whether the response is
// still good, in place of the client's. With nil it only takes the client's out. A Range goes, too,
// for it is a whole response that is wanted.
func (res *response) validators(r *http.Request) {
	h := r.Header
	for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range"} {
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

// parseHTTPDate reads a field that has one date, in any of the three forms (RFC 9110, section
// 5.6.7).
func parseHTTPDate(lines []string) (time.Time, bool) {
	if len(lines) != 1 {
		return time.Time{}, false
	}
	t, err := http.ParseTime(lines[0])
	return t, err == nil
}
