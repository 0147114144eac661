package middleware

import (
	"maps"
	"net/http"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// validates reports whether the handler can be asked whether this response is still good for a
// request.
func (res *response) validates(r *http.Request) bool {
	if res.status != http.StatusOK || !res.answers(res.key, r.Header) {
		return false
	}
	return res.header.Get("Etag") != "" || res.byDate(r)
}

// byDate reports whether the question may be about the response's date: not if the response or the
// request is somebody's in particular, for one user's page can be older than another's and still be
// another page. A tag says which page it is.
func (res *response) byDate(r *http.Request) bool {
	_, dated := parseHTTPDate(res.header["Last-Modified"])
	return dated && !res.personal && !identified(r, res.vary)
}

// stale reports whether a response with this status is to be withheld, because there is something
// stale that may be served in its place (RFC 5861, section 4).
func (u *run) stale(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return false
	}
	if u.prev == nil || u.prev.unshared {
		return false
	}
	return u.found.UsableFor > 0 || u.client != nil && u.client.asked.takesOnError(u.prev, -u.found.FreshFor)
}

// why says why the handler was asked (RFC 9211, section 2.2).
func (u *run) why() string {
	switch {
	case u.prev == nil && u.client != nil && u.client.level != u.client.base:
		return "vary-miss"
	case u.prev == nil:
		return "uri-miss"
	case u.prev.unshared && u.asks: // it is kept to be asked about each time
		return "stale"
	case u.prev.unshared:
		return "miss"
	case u.found.FreshFor > 0:
		return "request"
	}
	return "stale"
}

// confirmed is how a run ends whose handler says that the stored response is still good, and which
// of its fields are new (RFC 9111, section 4.3.4). If its validator is that of another response, it
// updates nothing. It is an answer to the question all the same if that was by tag alone; if a date
// was in it too, it may be about the date, which is blind to two changes within a second, and then
// the next request asks again.
//
// said is the whole header, with what was there before the handler was called; both are canonical.
func (u *run) confirmed(said, before http.Header) ending {
	said = u.cache.selectingOnly(said, before)
	news := ownFields(said, before)
	res := u.prev.updated(news, nil)
	if res == nil {
		if u.prev.personal || identified(&u.asked, u.prev.vary) { // it may be about somebody else's page
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
	if e.NoShare && u.leaves() {
		e = cacheguard.Entry[*response]{Value: e.Value, NoShare: true, LeaveStored: true}
	}
	return ending{entry: e}
}

// notModified takes out of a header what a 304 doesn't have (RFC 9110, section 15.4.5).
func notModified(h http.Header) {
	_, hasTag := h["Etag"]
	for name := range h {
		if !inNotModified(name, hasTag) {
			delete(h, name)
		}
	}
}
