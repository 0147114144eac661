package middleware

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// rules decides what may be stored and shared, for how long. It never changes.
type rules struct {
	defaultTTL, negativeTTL, revalidate, ifError, keep time.Duration // 0 or negative: off
	heuristic                                          float64
	targeted                                           []string // canonical names
}

// newRules returns the rules of options with their defaults in place.
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

// verdict is what may be done with a response.
type verdict struct {
	// share: whoever waits for it may have it. With store also whoever comes, as long as it is
	// fresh or within its windows.
	share bool
	// store: it may be stored; without share only to be revalidated, with a validator that it has.
	store bool
	// remember: it is not shared, and what comes next from this resource won't be either, as far as
	// one can tell.
	remember bool
	// failed: the origin is in trouble, so that those who wait get the status and nothing else, and
	// don't ask again in turn.
	failed bool
	// guessed: the freshness is that of the options.
	guessed bool
	// provoked: it is an error that only the options make fresh. Any client may have provoked it,
	// by a field that the handler refuses.
	provoked bool

	fresh time.Duration // what is left of its lifetime, in whole milliseconds; 0 or negative: nothing
	age   time.Duration // how old it is (RFC 9111, section 4.2.3)

	// The stale windows, counted from the end of freshness, 0: none.
	revalidate, ifError time.Duration
	// keep is how long it stays, from the end of freshness, only to be revalidated.
	keep time.Duration
	// mustRevalidate: no request can have it stale by asking for it (max-stale).
	mustRevalidate bool

	drop []string // canonical names of fields that are for this client alone: others get the response without them
	why  string   // for the log
}

// judge says what may be done with the response (status, h) to r, which was sent to the handler at
// sent.
//
// must-revalidate, proxy-revalidate and no-cache rule stale windows out (RFC 9111, section 4.2.4).
// s-maxage does what proxy-revalidate does (section 5.2.2.10), which no option can undo; a window
// that the same response gives is another matter: it was written for those who know RFC 5861 to
// modify what the older directive says (section 5.2.3), and "s-maxage=1, stale-while-revalidate=59"
// is how it is mostly used. A request's max-stale modifies nothing. Who wants the options' windows
// and another lifetime than browsers says max-age in a targeted field.
//
// What comes without any freshness left gets no window from the options: "max-age=0" says that each
// use is to be checked.
func (u *rules) judge(r *http.Request, status int, h http.Header, sent, now time.Time) verdict {
	h = canonical(h)
	d := u.directives(h)
	failed := status >= 500
	v := verdict{age: initialAge(h, sent, now), failed: failed}
	if why, remember := u.forbidden(r, status, h, d); why != "" {
		v.why, v.remember = why, remember
		return v
	}
	life, basis := u.lifetime(d, status, h, now)
	vary, _ := varyOf(h)
	personal := identified(r, vary)
	none := "no freshness"
	if basis == guessed && personal && !d.public { // the options know nothing of whom it was made for
		life, basis, none = 0, noFreshness, "Cookie"
		if r.Header["Cookie"] == nil || slices.Contains(vary, "Cookie") {
			none = "Authorization"
		}
	}
	v.guessed = basis == guessed && !d.public
	v.provoked = basis == guessed && status >= 400
	v.fresh = (life - v.age).Truncate(time.Millisecond) // below that there is nothing in the store
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
	case v.revalidate > -v.fresh && !failed: // an error has to say itself that it is fresh
		v.why, v.share, v.store = "stale while revalidate", true, true
	default:
		v.why = "stale"
	}
	validator := hasTag(h, v.drop) || !personal && u.hasDate(h, now, v.drop) // see response.validates
	v.failed = failed && !v.share
	if !v.share {
		v.revalidate, v.ifError = 0, 0
		if !failed {
			// A client error that has no freshness says something of the request, which anyone can
			// provoke, and not of what others get.
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

// forbidden says why a response is for its own client alone, or "", and whether those that come
// next from this resource are too, as far as one can tell (RFC 9111, section 3).
func (u *rules) forbidden(r *http.Request, status int, h http.Header, d directives) (why string, remember bool) {
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
	case d.noStore && !d.mustUnderstand: // which is there for those who don't know must-understand (section 5.2.2.3)
		return "no-store", true
	case d.private:
		return "private", true
	case h["Set-Cookie"] != nil && !slices.Contains(d.fields, "Set-Cookie"):
		return "Set-Cookie", true
	case variesByAll(h):
		return "Vary: *", true
	case authorized(r) && !d.public && !d.mustRevalidate && (d.sMaxAge == notSaid || d.sMaxAgeBroken):
		return "Authorization", true // section 3.5
	}
	return "", false
}

// ownStatuses are those that say something of one client or one request. RFC 6585 forbids to store
// them.
var ownStatuses = []int{
	http.StatusPreconditionRequired, http.StatusTooManyRequests,
	http.StatusRequestHeaderFieldsTooLarge, http.StatusNetworkAuthenticationRequired,
}

// understood reports whether this cache knows what a status means for caching: those of RFC 9110.
func understood(status int) bool {
	switch {
	case status == http.StatusPartialContent, status == http.StatusNotModified, status == 306, status == 418:
		return false
	}
	return status >= 200 && status <= 205 || status >= 300 && status <= 308 || status >= 400 && status <= 417 ||
		status == 421 || status == 422 || status == 426 || status >= 500 && status <= 505
}

// variesByAll reports whether no other request gets this response, as far as Vary can be read.
func variesByAll(h http.Header) bool {
	_, star := varyOf(h)
	return star
}

// canonical returns a header with canonical names: h itself as a rule. A handler can put names into
// the map as it likes, and net/http writes them as they are, so "set-cookie" is a cookie for the
// client.
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

// speaks reports whether a header says something about freshness or storing.
func (u *rules) speaks(h http.Header) bool {
	for _, name := range append([]string{"Cache-Control", "Expires"}, u.targeted...) {
		if canonical(h)[name] != nil {
			return true
		}
	}
	return false
}

// hasTag reports whether what is stored of a response can be revalidated by its tag.
func hasTag(h http.Header, drop []string) bool {
	tags := h["Etag"]
	return len(tags) == 1 && tags[0] != "" && !slices.Contains(drop, "Etag")
}

// hasDate reports whether it can be revalidated by its date.
func (u *rules) hasDate(h http.Header, now time.Time, drop []string) bool {
	_, dated := headerDate(h, "Last-Modified", now)
	return dated && !slices.Contains(drop, "Last-Modified")
}
