package middleware

import (
	"net/http"
	"strings"
	"time"
)

// answer is the part of a stored response that a request gets: all of it, a 304, or a range.
type answer uint8

const (
	answerWhole answer = iota
	answerNotModified
	answerRange
)

// answer returns the part of the response that a request gets, by the request's conditions (RFC
// 9111, section 4.3.2; RFC 9110, sections 13.2.2 and 14.2). Conditions are evaluated only for a GET
// or HEAD whose response would be a 200. A response with any other status is given whole. Requests
// with If-Match or If-Unmodified-Since go to the handler and don't come here.
func (res *response) answer(r *http.Request) answer {
	get := r.Method == http.MethodGet
	if res.status != http.StatusOK || !get && r.Method != http.MethodHead {
		return answerWhole
	}
	if lines := r.Header["If-None-Match"]; len(lines) > 0 {
		if res.isAmong(lines) {
			return answerNotModified
		}
	} else if lines := r.Header["If-Modified-Since"]; len(lines) > 0 {
		if since, ok := parseHTTPDate(lines); ok && res.notModifiedSince(since) {
			return answerNotModified
		}
	}
	if lines := r.Header["Range"]; get && len(lines) == 1 && res.inRanges() &&
		res.meetsIfRange(r.Header["If-Range"]) {
		if spans, ok := parseRange(lines[0], len(res.body)); ok &&
			worthwhile(spans, len(res.body)) {
			return answerRange
		}
	}
	return answerWhole
}

// isAmong reports whether an If-None-Match contains the response's ETag, by the weak comparison, or
// is *.
func (res *response) isAmong(lines []string) bool {
	if len(lines) == 1 && trimOWS(lines[0]) == "*" {
		return true
	}
	mine := res.header.Get("Etag")
	if mine == "" {
		return false
	}
	mine = opaque(mine)
	for _, line := range lines {
		for {
			line = strings.TrimLeft(line, " \t,")
			if line == "" {
				break
			}
			var tag string
			if tag, line = nextTag(line); opaque(tag) == mine {
				return true
			}
		}
	}
	return false
}

// nextTag cuts the first entity tag off a list. If the list begins with other text, nextTag returns
// the text up to the next comma, so that it also finds tags that a handler has written without
// quotes.
func nextTag(list string) (tag, rest string) {
	start := 0
	if isWeak(list) {
		start = len("W/")
	}
	if start < len(list) && list[start] == '"' {
		if end := strings.IndexByte(list[start+1:], '"'); end >= 0 {
			end += start + 2
			return list[:end], list[end:]
		}
	}
	if end := strings.IndexByte(list, ','); end >= 0 {
		return trimOWS(list[:end]), list[end:]
	}
	return trimOWS(list), ""
}

func isWeak(tag string) bool { return strings.HasPrefix(tag, "W/") }

// opaque returns the part of an ETag that the weak comparison uses.
func opaque(tag string) string { return strings.TrimPrefix(tag, "W/") }

// notModifiedSince reports whether the response is not newer than since, by its Last-Modified or,
// if it has none, by its Date. A response that was made at its Date has not changed since then as
// long as it is fresh (RFC 9111, section 4.3.2). If the response has neither field,
// notModifiedSince returns false.
func (res *response) notModifiedSince(since time.Time) bool {
	lines := res.header["Last-Modified"]
	if len(lines) == 0 {
		lines = res.header["Date"]
	}
	modified, ok := parseHTTPDate(lines)
	return ok && !modified.After(since)
}

// inRanges reports whether ranges of the response may be given. A response with trailers is only
// given whole, because its trailers belong to the whole body.
func (res *response) inRanges() bool {
	return len(res.body) > 0 && len(res.trailer) == 0 &&
		!strings.EqualFold(res.header.Get("Accept-Ranges"), "none")
}

// meetsIfRange reports whether a request's If-Range, if any, allows it to get a range (RFC 9110,
// section 13.1.5). The comparison is strong. A date is used only if the response was made at least
// a second after this date, because otherwise the response could have changed within that second.
func (res *response) meetsIfRange(lines []string) bool {
	if len(lines) == 0 {
		return true
	}
	if len(lines) > 1 {
		return false
	}
	if have := trimOWS(lines[0]); strings.HasPrefix(have, `"`) {
		return have == res.header.Get("Etag")
	}
	have, ok := parseHTTPDate(lines)
	modified, hasModified := parseHTTPDate(res.header["Last-Modified"])
	made, hasMade := parseHTTPDate(res.header["Date"])
	return ok && hasModified && hasMade && have.Equal(modified) && made.Sub(modified) >= time.Second
}
