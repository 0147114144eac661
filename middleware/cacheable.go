package middleware

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// rules decides which responses may be stored and shared, and for how long. It never changes.
type rules struct {
	defaultTTL, negativeTTL, revalidate, ifError, keep time.Duration // 0 or negative: off
	heuristic                                          float64
	targeted                                           []string // canonical names
}

// newRules returns the rules of options whose defaults have been set.
func newRules(o Options) *rules {
	u := &rules{
		defaultTTL:  o.DefaultTTL,
		negativeTTL: o.NegativeTTL,
		revalidate:  o.StaleWhileRevalidate,
		ifError:     o.StaleIfError,
		keep:        o.Keep,
		heuristic:   o.Heuristic,
	}
	for _, name := range o.TargetedFields {
		u.targeted = append(u.targeted, http.CanonicalHeaderKey(name))
	}
	return u
}

// verdict is the decision whether a response may be stored and shared, and for how long.
type verdict struct {
	// share: the requests that wait may get the response. If store is set, too, later requests may
	// also get it, as long as it is fresh or within its stale windows.
	share bool
	// store: the response may be stored. Without share it is stored only to be revalidated with its
	// validator.
	store bool
	// remember: the response isn't shared, and later responses of this resource probably won't be
	// either.
	remember bool
	// failed: the origin has a problem, and the response isn't shared. The requests that wait get
	// one more try together, and then only the status. They don't run the handler one after
	// another.
	failed bool
	// guessed: the response is fresh only because of the options, and doesn't say public.
	guessed bool
	// provoked: the response is an error that is fresh only because of the options. Any client may
	// have caused it by a field that the handler rejects.
	provoked bool
	// refused: the error is about its request, and not about the resource.
	refused bool

	fresh time.Duration // the rest of its lifetime, in whole milliseconds; 0 or less: stale
	age   time.Duration // the age of the response (RFC 9111, section 4.2.3)

	// The stale windows, counted from the end of freshness, 0: none.
	revalidate, ifError time.Duration
	// keep is how long the response stays stored after its freshness and its stale windows have
	// ended, only to be revalidated.
	keep time.Duration
	// mustRevalidate: max-stale and stale-if-error of a request are ignored. The response is served
	// stale only within stale windows of its own.
	mustRevalidate bool

	// Canonical names of fields that are for this client alone: others get the response without
	// them.
	drop []string
	why  string // a word of reasons if the response isn't stored: for Cache-Status and observers
}

// judge returns the verdict on the response (status, h) to the request r, which was passed to the
// handler at sent.
//
// must-revalidate, proxy-revalidate and no-cache exclude stale windows (RFC 9111, section 4.2.4).
// s-maxage implies proxy-revalidate (section 5.2.2.10), so the options give such a response no
// stale window. But a window in the response itself is used, because the author of the response
// knows RFC 5861 and wants to modify the older directive (section 5.2.3). A usual example is
// "s-maxage=1, stale-while-revalidate=59". A request's max-stale never overrides must-revalidate or
// the other directives named above. To combine the options' windows with a lifetime that differs
// from the lifetime in browsers, set max-age in a targeted field.
//
// A response that is already stale when it arrives gets no window from the options: "max-age=0"
// says that each use must be checked.
func (u *rules) judge(r *http.Request, status int, h http.Header, sent, now time.Time) verdict {
	h = canonical(h)
	d := u.directives(h)
	failed := status >= 500
	v := verdict{age: initialAge(h, sent, now), failed: failed, refused: isRefusal(status)}
	if why, remember := u.forbidden(r, status, h, d); why != "" {
		v.why, v.remember = why, remember
		return v
	}
	life, basis := u.lifetime(d, status, h, now)
	vary, _ := varyOf(h)
	personal := identified(r, vary)
	none := "no freshness"
	// The options can't know for which user the response was made.
	if basis == guessed && personal && !d.public {
		life, basis, none = 0, noFreshness, "Cookie"
		if r.Header["Cookie"] == nil || slices.Contains(vary, "Cookie") {
			none = "Authorization"
		}
	}
	v.guessed = basis == guessed && !d.public
	v.provoked = basis == guessed && status >= 400
	v.fresh = (life - v.age).Truncate(time.Millisecond) // the store has no smaller unit
	v.drop = d.fields
	v.mustRevalidate = d.mustRevalidate || d.proxyRevalidate || d.noCache || d.sMaxAge != notSaid
	if !d.mustRevalidate && !d.proxyRevalidate && !d.noCache {
		v.revalidate, v.ifError = max(d.revalidate, 0), max(d.ifError, 0)
		if v.fresh > 0 && !failed && d.sMaxAge == notSaid {
			if d.revalidate == notSaid {
				v.revalidate = max(u.revalidate, 0)
			}
			if d.ifError == notSaid {
				v.ifError = max(u.ifError, 0)
			}
		}
	}
	switch {
	case d.noCache:
		v.why, v.fresh = "no-cache", min(v.fresh, 0)
	case basis == noFreshness:
		v.why = none
	case v.fresh > 0:
		v.why, v.share, v.store = "fresh", true, true
	case v.revalidate > -v.fresh && !failed: // an error must have a lifetime of its own
		v.why, v.share, v.store = "stale while revalidate", true, true
	default:
		v.why = "stale"
	}
	// See response.validates.
	validator := hasTag(h, v.drop) || !personal && u.hasDate(h, now, v.drop)
	v.failed = failed && !v.share
	if !v.share {
		v.revalidate, v.ifError = 0, 0
		if !failed {
			// A client error without a lifetime says something about its request, and anyone can
			// cause it. It doesn't tell which response other requests get.
			v.remember = status < 400 || basis != noFreshness
			v.store = v.remember && validator && d.present &&
				(basis == explicit || d.public || slices.Contains(heuristicStatuses, status))
		}
	}
	if v.store && validator {
		v.keep = max(u.keep, 0)
	}
	return v
}

// forbidden returns the reason why a response is for its own client only, or "" (RFC 9111, section
// 3). remember says whether later responses of this resource are probably for one client only, too.
func (u *rules) forbidden(
	r *http.Request, status int, h http.Header, d directives,
) (why string, remember bool) {
	switch {
	case r.Method != http.MethodGet:
		return "method", false
	case readAsked(r.Header).noStore:
		return "request: no-store", false
	case status < 200, status == http.StatusPartialContent, status == http.StatusNotModified:
		return "status", true
	case slices.Contains(ownStatuses, status):
		return "status", false
	case d.mustUnderstand && !understood(status):
		return "must-understand", true
	// With must-understand, no-store is only for caches that don't know must-understand (section
	// 5.2.2.3).
	case d.noStore && !d.mustUnderstand:
		return "no-store", true
	case d.private:
		return "private", true
	case h["Set-Cookie"] != nil && !slices.Contains(d.fields, "Set-Cookie"):
		return "Set-Cookie", true
	case variesByAll(h):
		return "Vary: *", true
	case authorized(r) && !d.public && !d.mustRevalidate &&
		(d.sMaxAge == notSaid || d.sMaxAgeBroken):
		return "Authorization", true // section 3.5
	}
	return "", false
}

// ownStatuses are the statuses that concern one client or one request. RFC 6585 forbids storing
// them.
var ownStatuses = []int{
	http.StatusPreconditionRequired, http.StatusTooManyRequests,
	http.StatusRequestHeaderFieldsTooLarge, http.StatusNetworkAuthenticationRequired,
}

// understood reports whether this cache knows what a status means for caching. It knows the final
// statuses of RFC 9110, except 206 and 304, which forbidden refuses before.
func understood(status int) bool {
	switch {
	case status == http.StatusPartialContent, status == http.StatusNotModified, status == 306,
		status == 418:
		return false
	}
	return status >= 200 && status <= 205 || status >= 300 && status <= 308 ||
		status >= 400 && status <= 417 ||
		status == 421 || status == 422 || status == 426 || status >= 500 && status <= 505
}

// variesByAll reports whether Vary says that no other request may get this response, or whether
// Vary can't be read.
func variesByAll(h http.Header) bool {
	_, star := varyOf(h)
	return star
}

// canonical returns a header with canonical names. Usually this is h itself. A handler can put
// names into the map in any spelling, and net/http writes them unchanged, so "set-cookie" sets a
// cookie in the client, too.
func canonical(h http.Header) http.Header {
	same := true
	for name := range h {
		same = same && http.CanonicalHeaderKey(name) == name
	}
	if same {
		return h
	}
	c := make(http.Header, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		to := http.CanonicalHeaderKey(name)
		c[to] = append(c[to], h[name]...)
	}
	return c
}

// speaks reports whether a header has a field about freshness or storing.
func (u *rules) speaks(h http.Header) bool {
	for _, name := range append([]string{"Cache-Control", "Expires"}, u.targeted...) {
		if canonical(h)[name] != nil {
			return true
		}
	}
	return false
}

// hasTag reports whether a response, once stored, can be revalidated by its ETag.
func hasTag(h http.Header, drop []string) bool {
	tags := h["Etag"]
	return len(tags) == 1 && tags[0] != "" && !slices.Contains(drop, "Etag")
}

// hasDate reports whether a response, once stored, can be revalidated by its date.
func (u *rules) hasDate(h http.Header, now time.Time, drop []string) bool {
	_, dated := headerDate(h, "Last-Modified", now)
	return dated && !slices.Contains(drop, "Last-Modified")
}
