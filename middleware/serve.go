package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serve answers a request with the response: whole, without its body (HEAD), in part, or with 304,
// depending on the request's conditions. status is a member for Cache-Status, or "". Several
// requests may be answered at the same time, and layers in front may change the header afterwards,
// so each request's header gets values of its own. b counts the body while it is sent.
func (res *response) serve(
	b *backlog, w http.ResponseWriter, r *http.Request, age time.Duration, status string,
) {
	if len(res.trailer) > 0 && !r.ProtoAtLeast(1, 1) {
		// HTTP/1.0 has no trailers. The response gets a length instead, so that the client notices
		// if the connection breaks.
		plain := *res
		plain.trailer, res = nil, &plain
	}
	answer := res.answer(r)
	h := w.Header()
	res.copyHeader(h, answer, age, status)
	switch answer {
	case answerNotModified:
		w.WriteHeader(http.StatusNotModified)
		return
	case answerRange:
		res.serveRange(b, w, r)
		return
	}
	head := r.Method == http.MethodHead
	trailer := len(res.trailer) > 0 && !head && mayHaveBody(res.status)
	if trailer {
		h["Trailer"] = []string{strings.Join(sortedNames(res.trailer), ", ")}
	}
	w.WriteHeader(res.status)
	if head || !mayHaveBody(res.status) {
		return
	}
	w, res, t := b.lends(w, res)
	defer t.close()
	if len(res.body) > 0 {
		_, _ = w.Write(res.body) // an error means that the client has left
	}
	if trailer {
		for name, values := range res.trailer {
			h[name] = slices.Clone(values)
		}
	}
}

// copyHeader writes the response's fields into h. All values are in one array that belongs to this
// request. The capacity of each field's slice ends with the slice, so that an append to one field
// can't overwrite the next field.
func (res *response) copyHeader(h http.Header, answer answer, age time.Duration, status string) {
	total := 4 // the number of values that are added below
	for _, values := range res.header {
		total += len(values)
	}
	room := make([]string, 0, total)
	_, hasTag := res.header["Etag"]
	for name, values := range res.header {
		if answer == answerNotModified && !inNotModified(name, hasTag) {
			continue
		}
		start := len(room)
		room = append(room, values...)
		own := room[start:len(room):len(room)]
		if already := h["Vary"]; name == "Vary" && len(already) > 0 {
			own = both(already, own)
		}
		h[name] = own
	}
	one := func(name, value string) {
		room = append(room, value)
		h[name] = room[len(room)-1 : len(room) : len(room)]
	}
	one("Age", strconv.FormatInt(int64(max(0, age)/time.Second), 10))
	if status != "" {
		if already := h["Cache-Status"]; len(already) > 0 {
			h["Cache-Status"] = append(slices.Clip(already), status)
		} else {
			one("Cache-Status", status)
		}
	}
	if answer == answerNotModified || !mayHaveBody(res.status) {
		delete(h, "Content-Length")
		return
	}
	if len(res.trailer) > 0 { // the body is sent in chunks, because only then can a trailer follow
		delete(h, "Content-Length")
	} else if _, has := res.header["Content-Length"]; !has {
		one("Content-Length", strconv.Itoa(len(res.body)))
	}
	// net/http would guess the type from a body. The cache guesses the type itself, so that a HEAD
	// and a range get the same type. For a stored part net/http guesses from the bytes that are
	// sent, as it does without the cache. The cache doesn't guess this type, because a client chose
	// where the part begins.
	if _, has := h["Content-Type"]; !has && len(res.body) > 0 &&
		res.status != http.StatusPartialContent && res.header.Get("Content-Encoding") == "" {
		one("Content-Type", http.DetectContentType(res.body))
	}
}

// inNotModified reports whether a 304 has this field. A 304 doesn't have fields that describe the
// representation and that caches don't use (RFC 9110, section 15.4.5).
func inNotModified(name string, hasTag bool) bool {
	switch name {
	case "Content-Type", "Content-Length", "Content-Encoding", "Content-Language", "Content-Range",
		"Content-Md5",
		"Content-Digest", "Repr-Digest", "Accept-Ranges":
		return false
	case "Last-Modified":
		return !hasTag
	}
	return true
}

// both returns the lines of two Vary fields, each line once. A layer in front may have set a Vary
// that also applies to this response. Of equal lines, all has that of own: to a further cache in
// front it is the handler's, see inFront.
func both(already, own []string) []string {
	all := slices.Clone(already)
	for _, line := range own {
		if i := slices.Index(all, line); i >= 0 {
			all[i] = line
		} else {
			all = append(all, line)
		}
	}
	return all
}

// mayHaveBody reports whether a response with this status has content (RFC 9110, section 6.4.1).
func mayHaveBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified && status >= 200
}

// weight returns the approximate number of bytes that the response takes in memory.
func (res *response) weight() int {
	const fixed, each = 256, 48
	n := fixed + len(res.key) + len(res.selected) + cap(res.body)
	for _, name := range res.vary {
		n += len(name) + each
	}
	for _, h := range []http.Header{res.header, res.trailer} {
		for name, values := range h {
			n += len(name) + each
			for _, value := range values {
				n += len(value) + each
			}
		}
	}
	return n
}
