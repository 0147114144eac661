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

// head has the handler answer a HEAD. If it says 200, that tells what a GET would get: the stored
// response, which could have been chosen for this request if it weren't for its age, is updated by
// it or goes (RFC 9111, section 4.3.5).
func (x *exchange) head() {
	before := canonical(x.w.Header().Clone())
	sent := time.Now()
	asked := *x.r // as it is before the handler may change it
	asked.Header = x.r.Header.Clone()
	x.alone("method")
	x.r = &asked
	if x.stale == nil || x.passed != http.StatusOK || x.stale.personal || identified(x.r, x.stale.vary) {
		return // or it may tell what somebody else would get
	}
	said := canonical(x.w.Header().Clone())
	delete(said, "Cache-Status")
	said = x.cache.selectingOnly(said, before)
	news := ownFields(said, before)
	ctx, cancel := context.WithTimeout(x.r.Context(), updateTime)
	defer cancel()
	if now, err := x.cache.loads.Peek(ctx, x.level); err != nil || now.Value == nil || madeAfter(now, sent) {
		return
	}
	_, _ = x.cache.loads.RefreshEntry(ctx, x.level, func(ctx context.Context, _ cacheguard.Result[*response]) (cacheguard.Entry[*response], error) {
		// What stands there now that the lease has been granted: what was there before may have
		// been purged meanwhile.
		now, err := x.cache.loads.Peek(ctx, x.level)
		if err != nil || madeAfter(now, sent) { // if a moment ago, nobody can say which of the two is newer
			return cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}, nil
		}
		e := x.headed(now.Value, news, said, sent)
		asGet := asked
		asGet.Method = http.MethodGet
		if e.NoShare && !x.cache.rules.judge(&asGet, http.StatusOK, said, sent, time.Now()).share { // this client's alone
			e = cacheguard.Entry[*response]{NoShare: true, LeaveStored: true}
		}
		return e, nil
	})
}

// updateTime is how long the client of a HEAD waits for the store to be told. If a handler runs for
// the resource, which takes longer, then what that says is newer.
const updateTime = 100 * time.Millisecond

// madeAfter reports whether a response was stored after an instant: what was asked for then may be
// older.
func madeAfter(found cacheguard.Result[*response], then time.Time) bool {
	return found.Age < time.Since(then)
}

// headed is what becomes of the stored response by a HEAD that was answered with these fields. It
// is the one that stands there now, which need not be the one that was looked at.
func (x *exchange) headed(res *response, news, said http.Header, sent time.Time) cacheguard.Entry[*response] {
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

// sameByHead reports whether a response to HEAD with these fields is to the same as the stored one.
func (res *response) sameByHead(news http.Header) bool {
	for _, name := range []string{"Etag", "Last-Modified", "Content-Length"} {
		if values := news[name]; values != nil && !slices.Equal(values, res.field(name)) {
			return false
		}
	}
	return true
}

// reentry is what is stored of a response that is still good, by news that came for a question sent
// then. nil is no news. said is the header with what somebody in front says, who decides with the
// handler.
func (c *Cache) reentry(r *http.Request, res *response, news, said http.Header, sent time.Time) cacheguard.Entry[*response] {
	h := maps.Clone(res.header)
	for name, values := range said {
		if h[name] == nil || news[name] != nil && !ofContent(name) {
			h[name] = values
		}
	}
	if news != nil {
		h["Date"], h["Age"] = news["Date"], news["Age"]
		if news["Date"] == nil { // it was said here and now
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
	e.Value = res // who asked gets it in any case
	return e
}

// field returns what a GET of the response would show of a field.
func (res *response) field(name string) []string {
	values := res.header[name]
	if name == "Content-Length" && values == nil {
		return []string{strconv.Itoa(len(res.body))}
	}
	return values
}
