package middleware

import (
	"maps"
	"net/http"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// validates reports whether a request to the handler can ask if this response is still good.
func (res *response) validates(r *http.Request) bool {
	if res.status != http.StatusOK || !res.answers(res.key, r.Header) {
		return false
	}
	return res.header.Get("Etag") != "" || res.byDate(r)
}

// byDate reports whether the response may be validated by its date. If the response or the request
// identifies a user, byDate returns false: the pages of two users may have any dates, so a date
// doesn't tell whether a page has changed. An ETag does.
func (res *response) byDate(r *http.Request) bool {
	_, dated := parseHTTPDate(res.header["Last-Modified"])
	return dated && !res.personal && !identified(r, res.vary)
}

// stale reports whether a response with this status may be replaced by a stale response (RFC 5861,
// section 4).
func (u *run) stale(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
	default:
		return false
	}
	if u.prev == nil || u.prev.unshared {
		return false
	}
	return u.found.UsableFor > 0 ||
		u.client != nil && u.client.asked.takesOnError(u.prev, -u.found.FreshFor)
}

// why returns the reason why the handler was run, for Cache-Status (RFC 9211, section 2.2).
func (u *run) why() string {
	switch {
	case u.prev == nil && u.client != nil && u.client.level != u.client.base:
		return "vary-miss"
	case u.prev == nil:
		return "uri-miss"
	case u.prev.unshared && u.asks: // the response is stored only to be validated each time
		return "stale"
	case u.prev.unshared:
		return "miss"
	case u.found.FreshFor > 0:
		return "request"
	}
	return "stale"
}

// confirmed returns the ending of a run whose handler has answered with a 304. The 304 says that
// the stored response is still good, and may have new values for its fields (RFC 9111, section
// 4.3.4). If the 304 has the validator of another response, it updates no fields. If the stored
// response or the request identifies a user, the cache ignores this 304. Otherwise it still
// confirms the stored response, if the request to the handler had only an ETag. If the request also
// had a date, the 304 may be based on the date, which can't show two changes within a second. Then
// the next request asks again.
//
// before is the header as it was before the handler was called. said is the whole header, and
// includes before. Both are canonical.
func (u *run) confirmed(said, before http.Header) ending {
	said, news := u.cache.news(said, before)
	res := u.prev.updated(news, nil)
	if res == nil {
		if u.prev.personal || identified(&u.asked, u.prev.vary) { // the 304 may be another user's
			return ending{entry: u.unshared(verdict{})}
		}
		same := *u.prev
		same.header = maps.Clone(same.header)
		res = &same
		if res.header["Last-Modified"] != nil {
			news = nil
		}
	}
	e := u.cache.reentry(&u.asked, res, news, said, u.sent.at)
	if e.NoShare && u.leaves(verdict{}) {
		e = cacheguard.Entry[*response]{Value: e.Value, NoShare: true, LeaveStored: true}
	}
	return ending{entry: e}
}

// notModified removes the fields that a 304 doesn't have from a header (RFC 9110, section 15.4.5).
func notModified(h http.Header) {
	_, hasTag := h["Etag"]
	for name := range h {
		if !inNotModified(name, hasTag) {
			delete(h, name)
		}
	}
}
