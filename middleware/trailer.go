package middleware

import (
	"net/http"
	"slices"
	"strings"
)

// trailers returns the fields that a handler sets after it has written the body, in either of
// net/http's two ways.
func (rec *recorder) trailers() http.Header {
	var t http.Header
	add := func(name string, values []string) {
		if t == nil {
			t = http.Header{}
		}
		t[name] = values
	}
	for name, values := range rec.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			add(name, values)
		}
	}
	for _, list := range rec.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values := rec.header[name]; values != nil {
				add(name, values)
			}
		}
	}
	return t
}

// storedTrailer returns a copy of a trailer with plain names, without the fields in drop and
// without Set-Cookie. Set-Cookie is for one client only. In a trailer it comes too late: the
// response may already be shared, so only the field can be left out.
func storedTrailer(t, before http.Header, drop []string) http.Header {
	if len(t) == 0 {
		return nil
	}
	plain := make(http.Header, len(t))
	for name, values := range t {
		plain[http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))] = values
	}
	return storedHeader(ownFields(plain, before), append(slices.Clip(drop), "Set-Cookie"))
}
