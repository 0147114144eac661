package middleware

import (
	"net/http"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// asked has the wishes in a request's Cache-Control and Pragma (RFC 9111, sections 5.2.1 and 5.4).
// Because they are only wishes, a directive whose number can't be read is ignored.
type asked struct {
	noCache, noStore, onlyIfCached bool
	// notSaid if not there; max-stale without a value: mostTTL.
	maxAge, minFresh, maxStale, ifError time.Duration

	// A response that may be older than this token isn't accepted. The token comes from the
	// request's context.
	token cacheguard.Token
}

func readAsked(h http.Header) asked {
	a := asked{maxAge: notSaid, minFresh: notSaid, maxStale: notSaid, ifError: notSaid}
	lines, there := h["Cache-Control"]
	if !there {
		for s := (scanner{lines: h["Pragma"]}); s.next(); {
			a.noCache = a.noCache || strings.EqualFold(s.name, "no-cache")
		}
		return a
	}
	for s := (scanner{lines: lines}); s.next(); {
		switch strings.ToLower(s.name) {
		case "no-cache":
			a.noCache = true
		case "no-store":
			a.noStore = true
		case "only-if-cached":
			a.onlyIfCached = true
		case "max-age":
			s.seconds(&a.maxAge)
		case "min-fresh":
			s.seconds(&a.minFresh)
		case "max-stale":
			if s.form == bare && a.maxStale == notSaid {
				a.maxStale = mostTTL
			}
			s.seconds(&a.maxStale)
		case "stale-if-error":
			s.seconds(&a.ifError)
		}
	}
	return a
}

// seconds sets *to to the value of the directive if that is a number of seconds and *to has not
// been set.
func (s *scanner) seconds(to *time.Duration) {
	if n, ok := deltaSeconds(s.arg); ok && *to == notSaid {
		*to = n
	}
}

// takes reports whether the request accepts a stored response, so that the handler need not run.
// The response has this age and stays fresh for freshFor. If the response is stale, freshFor is
// zero or negative. With mustRevalidate, takes accepts no stale response. takes ignores the stale
// windows of RFC 5861: see takesMeanwhile. It also ignores no-store, which only concerns the
// storing of new responses (RFC 9111, section 5.2.1.5).
func (a asked) takes(age, freshFor time.Duration, mustRevalidate bool) bool {
	switch {
	case a.noCache:
		return false
	case a.maxAge != notSaid && age > a.maxAge:
		return false
	case a.minFresh != notSaid && freshFor < a.minFresh:
		return false
	case freshFor > 0: // at 0 it is stale (RFC 9111, section 4.2)
		return true
	}
	return !mustRevalidate && a.maxStale != notSaid && freshFor >= -a.maxStale
}

// takesMeanwhile reports whether the request accepts a stale response, within its
// stale-while-revalidate window, while a new response is made. over is how long the response has
// been stale. A request with max-age alone (RFC 9111, section 5.2.1.1) or with min-fresh doesn't
// want a stale response. A request with max-stale says how stale the response may be.
func (a asked) takesMeanwhile(age, over time.Duration) bool {
	switch {
	case a.noCache, a.minFresh != notSaid:
		return false
	case a.maxAge != notSaid && (age > a.maxAge || a.maxStale == notSaid):
		return false
	}
	return a.maxStale == notSaid || over <= a.maxStale
}

// takesOnError reports whether the request prefers a stale response to an error (RFC 5861, section
// 4). over is how long the response has been stale.
func (a asked) takesOnError(res *response, over time.Duration) bool {
	return a.ifError != notSaid && over <= a.ifError && !res.mustRevalidate
}

// firm returns the wishes that Options.IgnoreRequestDirectives leaves: no-store and only-if-cached.
func (a asked) firm() asked {
	return asked{
		noStore: a.noStore, onlyIfCached: a.onlyIfCached, maxAge: notSaid, minFresh: notSaid,
		maxStale: notSaid, ifError: notSaid,
	}
}
