package middleware

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Handlers answer a request with Range by sending parts. The parts are stored under a key of their
// own, separately from the whole responses of the resource. So a client that asks for ranges can't
// displace a whole response. Each resource has one value with parts. The value has the status 206,
// its body is the parts one after another, and its header has a Content-Range for each part. Parts
// are stored together only if they have the same strong ETag (RFC 9111, section 3.4). When they
// make up the whole body, they are stored as a whole response.
//
// If two stored responses contain a requested range, the range is served from the response with the
// later Date (RFC 9111, section 4). So if there is a whole response of another version that is at
// least as new as a part, the part is no longer used. No part is stored while a whole response is
// fresh.
//
// If a request identifies its user, no part is stored for it. It gets a stored part under the same
// conditions as a whole response.

// partKey is the key of the parts of a resource.
func partKey(key string) string { return "p" + keySeparator + key }

const mostParts = 16

// inParts is a body of which some parts are known.
type inParts struct {
	spans []span // in order, with gaps between them
	size  int    // the size of the whole body
}

// parts reads the Content-Range lines of a stored response. It returns false if the response has no
// parts or they are invalid.
func (res *response) parts() (p inParts, ok bool) {
	lines := res.header["Content-Range"]
	if res.status != http.StatusPartialContent || len(lines) == 0 || len(lines) > mostParts {
		return p, false
	}
	total, last := 0, -1
	for _, line := range lines {
		s, size, ok := parseContentRange(line)
		if !ok || s.start <= last || p.size != 0 && size != p.size {
			return p, false
		}
		p.spans, p.size = append(p.spans, s), size
		total, last = total+s.length(), s.end
	}
	return p, total == len(res.body)
}

// parseContentRange reads a Content-Range that has all three numbers (RFC 9110, section 14.4).
func parseContentRange(line string) (s span, size int, ok bool) {
	unit, rest, _ := strings.Cut(trimOWS(line), " ")
	positions, complete, _ := strings.Cut(rest, "/")
	first, last, _ := strings.Cut(positions, "-")
	start, ok1 := position(first)
	end, ok2 := position(last)
	size, ok3 := position(complete)
	if !strings.EqualFold(unit, "bytes") || !ok1 || !ok2 || !ok3 || end < start || end >= size {
		return s, 0, false
	}
	return span{start, end + 1}, size, true
}

// cut returns the bytes of one range, if all of them are stored.
func (res *response) cut(want span) ([]byte, bool) {
	p, ok := res.parts()
	if !ok {
		return nil, false
	}
	at := 0
	for _, s := range p.spans {
		if s.start <= want.start && want.end <= s.end {
			return res.body[at+want.start-s.start : at+want.end-s.start], true
		}
		at += s.length()
	}
	return nil, false
}

// sameVersion reports whether both responses have the same strong ETag, so that their bytes are
// bytes of the same representation.
func (res *response) sameVersion(other *response) bool {
	tag := other.header["Etag"]
	return len(tag) == 1 && strings.HasPrefix(tag[0], `"`) &&
		slices.Equal(tag, res.header["Etag"]) &&
		res.key == other.key && slices.Equal(res.vary, other.vary) && res.selected == other.selected
}

// outdated compares res with another stored response, by. It reports whether by has a different
// version and is not older than res.
func (res *response) outdated(by *response) bool {
	if by == nil || res.sameVersion(by) {
		return false
	}
	mine, ok := parseHTTPDate(res.header["Date"])
	its, also := parseHTTPDate(by.header["Date"])
	return !ok || !also || !mine.After(its)
}

// with joins the parts of both responses. more is the newer one, so its header fields are
// preferred. with returns false if the parts can't be joined, because they have no common strong
// validator or exceed the limits.
func (res *response) with(more *response, maxBody int) (*response, bool) {
	have, ok := res.parts()
	add, also := more.parts()
	if !ok || !also || have.size != add.size || !res.sameVersion(more) {
		return nil, false
	}
	all := append(have.spans, add.spans...)
	slices.SortFunc(all, func(a, b span) int { return a.start - b.start })
	joined, total := all[:1], 0
	for _, s := range all[1:] {
		if last := &joined[len(joined)-1]; s.start <= last.end {
			last.end = max(last.end, s.end)
		} else {
			joined = append(joined, s)
		}
	}
	for _, s := range joined {
		total += s.length()
	}
	if total > maxBody || len(joined) > mostParts {
		return nil, false
	}
	both := *more
	both.header = maps.Clone(res.header)
	maps.Copy(both.header, more.header)
	both.header["Content-Range"] = nil
	both.body = make([]byte, 0, total)
	for _, s := range joined {
		both.header["Content-Range"] = append(both.header["Content-Range"],
			s.contentRange(have.size))
		room := both.body[len(both.body) : len(both.body)+s.length()]
		for _, from := range []*response{res, more} { // if both have a byte, it is the same byte
			from.copyInto(room, s)
		}
		both.body = both.body[:len(both.body)+len(room)]
	}
	return &both, true
}

// copyInto copies the stored bytes of the range "to" to their places in room.
func (res *response) copyInto(room []byte, to span) {
	p, _ := res.parts()
	at := 0
	for _, s := range p.spans {
		if from, end := max(s.start, to.start), min(s.end, to.end); from < end {
			copy(room[from-to.start:], res.body[at+from-s.start:at+end-s.start])
		}
		at += s.length()
	}
}

// whole returns the whole response if the parts make up its whole body.
func (res *response) whole() (*response, bool) {
	p, ok := res.parts()
	if !ok || p.spans[0].length() != p.size {
		return nil, false
	}
	all := *res
	all.status, all.header = http.StatusOK, maps.Clone(res.header)
	delete(all.header, "Content-Range")
	return &all, true
}

// oneRange reports whether a request is for one range and has no condition except If-Range.
func (x *exchange) oneRange() bool {
	h := x.r.Header
	return x.r.Method == http.MethodGet && len(h["Range"]) == 1 &&
		!strings.Contains(h["Range"][0], ",") &&
		h["If-None-Match"] == nil && h["If-Modified-Since"] == nil
}

// storedPart answers a request for one range with a stored part. The part must have the whole range
// and be fresh, and it must suit the request's Vary fields, directives and If-Range. If there is
// none, or if the request has another condition, storedPart returns false.
func (x *exchange) storedPart() bool {
	h := x.r.Header
	if !x.oneRange() {
		return false
	}
	found, err := x.cache.loads.Peek(x.r.Context(), partKey(x.key))
	res := found.Value
	if err != nil || found.Status != cacheguard.StatusHit || res == nil || !res.answers(x.key, h) ||
		!res.suits(x.r) {
		return false
	}
	age := res.age + found.Age
	p, ok := res.parts()
	if !ok || !x.asked.takes(age, found.FreshFor, res.mustRevalidate) ||
		!res.meetsIfRange(h["If-Range"]) || res.outdated(x.stale) {
		return false
	}
	wanted, _ := parseRange(h["Range"][0], p.size)
	if len(wanted) != 1 {
		return false
	}
	if _, ok := res.cut(wanted[0]); !ok {
		return false
	}
	w, res, t := x.cache.backlog.lends(x.w, res)
	defer t.close()
	body, _ := res.cut(wanted[0])
	to := w.Header()
	res.copyHeader(to, answerRange, age, x.cache.hitStatus(found, x.key))
	to["Content-Range"] = []string{wanted[0].contentRange(p.size)}
	to["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(body) // an error means that the client has left
	return true
}

// partOf returns the response to store for the header of a 206, without its body, and the length
// that the body must have. It returns nil if the response can't be stored. If a response gives two
// different lengths, it isn't stored, because neither its position in the whole body nor its end is
// certain.
func (c *Cache) partOf(
	r *http.Request, key string, status int, all, before http.Header, sent time.Time,
) (*response, verdict, int) {
	all = canonical(all)
	lines := all["Content-Range"]
	if status != http.StatusPartialContent || len(lines) != 1 || all["Trailer"] != nil {
		return nil, verdict{}, 0
	}
	s, _, ok := parseContentRange(lines[0])
	if length := all["Content-Length"]; !ok ||
		length != nil && !slices.Equal(length, []string{strconv.Itoa(s.length())}) ||
		s.length() > c.opts.MaxBody {
		return nil, verdict{}, 0
	}
	// The part is judged like a 200 with these fields, because this cache knows what 206 means (RFC
	// 9111, section 3).
	v := c.rules.judge(r, http.StatusOK, c.selectingOnly(all, before), sent, time.Now())
	if !v.share || !v.store || v.fresh <= 0 {
		return nil, v, 0
	}
	v.revalidate, v.ifError, v.keep = 0, 0, 0
	res := c.kept(r, key, status, all, before, v)
	delete(res.header, "Content-Length") // other requests get ranges of other lengths
	if len(res.header["Content-Range"]) != 1 ||
		slices.ContainsFunc(ofOneBody, func(name string) bool { return res.header[name] != nil }) {
		return nil, v, 0
	}
	return res, v, s.length()
}

// A part that has one of the fields in ofOneBody is not stored. Content-Md5 and Content-Digest
// describe the body in which the part was sent. Content-Encoding can come from a compressing
// middleware that doesn't know ranges, such as chi's. Then the body is a compressed part and not a
// part of the compressed body. The length doesn't show this, because a client can find a range
// whose length doesn't change when it is compressed.
var ofOneBody = []string{"Content-Md5", "Content-Digest", "Content-Encoding"}

// kept returns the response to r, without its body, in the form in which others may get it. Both
// headers are canonical.
func (c *Cache) kept(
	r *http.Request, key string, status int, all, before http.Header, v verdict,
) *response {
	own := maps.Clone(ownFields(all, before))
	if vary := c.selecting(all, before); len(vary) > 0 {
		own["Vary"] = vary
	}
	if own["Date"] == nil {
		own["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	}
	res := &response{
		key: key, status: status, age: v.age, mustRevalidate: v.mustRevalidate, guessed: v.guessed,
		header: storedHeader(own, v.drop),
	}
	res.vary, _ = varyOf(own)
	res.selected = selectedBy(res.vary, r.Header)
	return res
}

// completed stores the parts of a resource as a whole response if they now make up the whole body
// and no whole response is fresh. It reads the parts again while it holds the lease of the whole
// response, so that parts that were purged meanwhile aren't stored again.
func (x *exchange) completed() {
	ctx, cancel := context.WithTimeout(x.r.Context(), publishTimeout)
	defer cancel()
	c := x.cache
	nothing := cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}
	_, _ = c.loads.GetEntry(ctx, x.key, func(
		ctx context.Context, _ cacheguard.Result[*response],
	) (cacheguard.Entry[*response], error) {
		found, err := c.loads.Peek(ctx, partKey(x.key))
		if err != nil || found.Status != cacheguard.StatusHit || found.Value == nil ||
			len(found.Value.vary) > 0 {
			return nothing, nil // a variant is left out, because MaxVariants isn't checked here
		}
		all, ok := found.Value.whole()
		if !ok {
			return nothing, nil
		}
		v := c.rejudged(x.r, all, all.age+found.Age)
		if !v.share {
			return nothing, nil
		}
		all.age, all.guessed = v.age, v.guessed
		return c.entry(v, all).NotNewerThan(found), nil
	})
}
