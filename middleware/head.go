package middleware

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// head lets the handler answer a HEAD. If the handler answers 200, its header is the header that a
// GET would get. Then head updates or removes the stored response that would have answered this
// request if it were fresh (RFC 9111, section 4.3.5).
func (x *exchange) head() {
	before := x.cache.inFront(x.w.Header())
	sent := time.Now()
	asked := *x.r // a copy, because the handler may change the request
	asked.Header = x.r.Header.Clone()
	x.alone("method")
	x.r = &asked
	if x.stale == nil || x.passed != http.StatusOK || x.stale.personal ||
		identified(x.r, x.stale.vary) {
		return // there is nothing to update, or the header may be another user's
	}
	said := canonical(x.said)
	delete(said, "Cache-Status")
	said, news := x.cache.news(said, before)
	ctx, cancel := context.WithTimeout(x.r.Context(), updateTime)
	defer cancel()
	if now, err := x.cache.loads.Peek(ctx, x.level); err != nil || now.Value == nil ||
		madeAfter(now, sent) {
		return
	}
	_, _ = x.cache.loads.RefreshEntry(ctx, x.level, func(
		ctx context.Context, _ cacheguard.Result[*response],
	) (cacheguard.Entry[*response], error) {
		// The stored response is read again under the lease, because the response that was read
		// before may have been purged since.
		now, err := x.cache.loads.Peek(ctx, x.level)
		// If a response was stored meanwhile, nobody can say whether it or the HEAD's is newer.
		if err != nil || madeAfter(now, sent) {
			return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}, nil
		}
		e := x.headed(now.Value, news, said, sent)
		asGet := asked
		asGet.Method = http.MethodGet
		// A response to HEAD that is for this client only doesn't remove the stored response.
		if e.NoShare && !x.cache.rules.judge(&asGet, http.StatusOK, said, sent, time.Now()).share {
			e = cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}
		}
		return e.NotNewerThan(now), nil // the HEAD's handler may have begun before another change
	})
}

// updateTime is how long the client of a HEAD waits for the update of the store. If a handler is
// running for the resource, the update takes longer. But then it is hardly needed, because this
// handler's response usually replaces the stored response.
const updateTime = 100 * time.Millisecond

// madeAfter reports whether a response was stored after the time then. If so, the handler's
// response to a request that was sent at this time may be older than the stored response.
func madeAfter(found cacheguard.Result[*response], then time.Time) bool {
	return found.Age < time.Since(then)
}

// headed returns the entry that replaces the stored response res after a HEAD was answered with
// these fields. res is the response that is stored now. It may differ from the one that the request
// looked at before.
func (x *exchange) headed(
	res *response, news, said http.Header, sent time.Time,
) cacheguard.Entry[*response] {
	gone := cacheguard.Entry[*response]{NoShare: true}
	if res == nil || !res.answers(x.key, x.r.Header) || !res.sameByHead(news) {
		return gone
	}
	updated := res.updated(news, nil)
	if updated == nil {
		return gone
	}
	asGet := *x.r
	asGet.Method = http.MethodGet
	return x.cache.reentry(&asGet, updated, news, said, sent)
}

// sameByHead reports whether a response to HEAD with these fields is about the representation that
// the stored response has.
func (res *response) sameByHead(news http.Header) bool {
	for _, name := range []string{"Etag", "Last-Modified", "Content-Length"} {
		if values := news[name]; values != nil && !slices.Equal(values, res.field(name)) {
			return false
		}
	}
	return true
}

// reentry returns the entry for a stored response res that is still good. news has the new fields
// that the handler has sent in response to a request sent at sent, or is nil if there are none.
// said is the whole header, including the fields of layers in front, which also decide about
// storing.
func (c *Cache) reentry(
	r *http.Request, res *response, news, said http.Header, sent time.Time,
) cacheguard.Entry[*response] {
	h := maps.Clone(res.header)
	for name, values := range said {
		if h[name] == nil || news[name] != nil && !ofContent(name) {
			h[name] = values
		}
	}
	if news != nil {
		h["Date"], h["Age"] = news["Date"], news["Age"]
		if news["Date"] == nil { // without a Date the response was made now
			delete(h, "Date")
			res.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
		}
		if news["Age"] == nil {
			delete(h, "Age")
		}
	}
	v := c.rules.judge(r, res.status, h, sent, time.Now())
	res.age, res.mustRevalidate, res.unshared = v.age, v.mustRevalidate, false
	if len(v.drop) > 0 {
		res.header = storedHeader(res.header, v.drop)
	}
	if vary := h["Vary"]; vary != nil {
		res.header["Vary"] = slices.Clone(vary)
	}
	res.vary, _ = varyOf(res.header)
	res.selected = selectedBy(res.vary, r.Header)
	res.personal, res.guessed = res.personal || identified(r, res.vary), v.guessed
	e := c.entry(v, res)
	e.Value = res // its own client gets it in any case
	return e
}

// field returns the values that a field would have in the response to a GET.
func (res *response) field(name string) []string {
	values := res.header[name]
	if name == "Content-Length" && values == nil {
		return []string{strconv.Itoa(len(res.body))}
	}
	return values
}
