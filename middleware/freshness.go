package middleware

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// basis is the source of a response's freshness.
type basis uint8

const (
	noFreshness basis = iota
	explicit          // the response says so itself
	guessed           // the options say so
)

// lifetime returns how long a response is fresh, counted from the time at which it was made (RFC
// 9111, section 4.2.1). The result is never negative and never more than mostTTL.
func (u *rules) lifetime(
	d directives, status int, h http.Header, now time.Time,
) (time.Duration, basis) {
	switch {
	case d.sMaxAge != notSaid:
		return d.sMaxAge, explicit
	case d.maxAge != notSaid:
		return d.maxAge, explicit
	}
	made, dated := headerDate(h, "Date", now)
	if !dated {
		made = now // when it was received (RFC 9110, section 6.6.1)
	}
	if lines := h["Expires"]; len(lines) > 0 && !d.targeted {
		end, ok := parseDate(lines[0], now)
		if !ok { // invalid dates such as "0" mean that it has expired (RFC 9111, section 5.3)
			return 0, explicit
		}
		return between(0, end.Sub(made), mostTTL), explicit
	}
	if slices.Contains(heuristicStatuses, status) {
		// RFC 9111, section 4.2.2, allows this for any status if the response is public. But some
		// sites set public on all their responses, also on errors, and mean only their pages.
		modified, ok := headerDate(h, "Last-Modified", now)
		if ok && u.heuristic > 0 && modified.Before(made) {
			share := time.Duration(float64(between(0, made.Sub(modified), mostTTL)) * u.heuristic)
			// A client can provoke an error, for example by a field that overrides the method.
			if status >= 400 {
				share = min(share, mostNegativeTTL)
			}
			return min(share, mostHeuristic), guessed
		}
		ttl := u.defaultTTL
		if status >= 400 {
			ttl = u.negativeTTL
		}
		if ttl > 0 {
			return min(ttl, mostTTL), guessed
		}
	}
	return 0, noFreshness
}

// mostHeuristic is the longest lifetime that is guessed from Last-Modified. RFC 7234 asked caches
// to add a warning to responses with a guessed lifetime that were older than a day.
const mostHeuristic = 24 * time.Hour

// heuristicStatuses are the statuses of responses that may be fresh without a lifetime of their own
// (RFC 9110, section 15.1), except 206.
var heuristicStatuses = []int{200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501}

// initialAge returns the age of a response that was requested at sent and has arrived now (RFC
// 9111, section 4.2.3), at most mostTTL.
//
// If a response has a Date or an Age, it was made elsewhere, and initialAge adds the time between
// sent and now. A response that a handler makes itself is new when it arrives. Otherwise a slow
// handler could not use max-age=1.
//
// If Age has several members the first one is used. An Age that isn't a number is ignored (RFC
// 9111, section 5.1).
func initialAge(h http.Header, sent, now time.Time) time.Duration {
	age, aged := ageOf(h["Age"])
	made, dated := headerDate(h, "Date", now)
	if dated || aged {
		age += between(0, now.Sub(sent), mostTTL)
	}
	if dated { // Date has whole seconds
		age = max(age, now.Truncate(time.Second).Sub(made))
	}
	return between(0, age, mostTTL)
}

// ageOf returns the first member of an Age. It returns false if there is no member, or if the first
// member is no number of seconds.
func ageOf(lines []string) (time.Duration, bool) {
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			if member = trimOWS(member); member != "" {
				return deltaSeconds(member)
			}
		}
	}
	return 0, false
}

// headerDate returns the date in a field. It returns false if the field doesn't have exactly one
// line, or if the date in this line can't be read.
func headerDate(h http.Header, name string, now time.Time) (time.Time, bool) {
	lines := h[name]
	if len(lines) != 1 {
		return time.Time{}, false
	}
	return parseDate(lines[0], now)
}

// parseDate reads a date in one of the three forms of RFC 9110, section 5.6.7. It accepts no other
// form, because any other form means the past (RFC 9111, section 5.3). time.Parse also accepts
// various spaces and fractions, and would make responses fresh that are not fresh. Names and zone
// may be in upper or lower case, and the zone must be GMT (RFC 9111, section 4.2). The name of the
// day is not compared with the date.
func parseDate(s string, now time.Time) (time.Time, bool) {
	s = strings.Trim(s, " \t")
	var day, month, year, clock, zone string
	switch name, rest, comma := strings.Cut(s, ","); {
	case !comma: // Sun Nov  6 08:49:37 1994
		if len(s) != 24 || !isName(s[:3], shortDays) || s[3] != ' ' || s[7] != ' ' ||
			s[10] != ' ' || s[19] != ' ' {
			return time.Time{}, false
		}
		day, month, year, clock, zone = s[8:10], s[4:7], s[20:], s[11:19], "GMT"
		if day[0] == ' ' {
			day = "0" + day[1:]
		}
	case len(rest) == 25 && isName(name, shortDays): // Sun, 06 Nov 1994 08:49:37 GMT
		if rest[0] != ' ' || rest[3] != ' ' || rest[7] != ' ' || rest[12] != ' ' ||
			rest[21] != ' ' {
			return time.Time{}, false
		}
		day, month, year, clock, zone = rest[1:3], rest[4:7], rest[8:12], rest[13:21], rest[22:]
	case len(rest) == 23 && isName(name, longDays): // Sunday, 06-Nov-94 08:49:37 GMT
		if rest[0] != ' ' || rest[3] != '-' || rest[7] != '-' || rest[10] != ' ' ||
			rest[19] != ' ' {
			return time.Time{}, false
		}
		day, month, year, clock, zone = rest[1:3], rest[4:7], rest[8:10], rest[11:19], rest[20:]
	default:
		return time.Time{}, false
	}
	m := 1 + slices.IndexFunc(months, func(name string) bool {
		return strings.EqualFold(name, month)
	})
	if m == 0 || !strings.EqualFold(zone, "GMT") || clock[2] != ':' || clock[5] != ':' {
		return time.Time{}, false
	}
	d, dok := digits(day)
	y, yok := digits(year)
	hour, hok := digits(clock[:2])
	minute, mok := digits(clock[3:5])
	second, sok := digits(clock[6:])
	if !dok || !yok || !hok || !mok || !sok || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	second = min(second, 59) // a leap second, which time.Time doesn't have
	if len(year) == 2 {
		y += now.UTC().Year() / 100 * 100
		// A date that seems to be more than 50 years in the future is in the past.
		if time.Date(y, time.Month(m), d, hour, minute, second, 0,
			time.UTC).After(now.AddDate(50, 0, 0)) {
			y -= 100
		}
	}
	t := time.Date(y, time.Month(m), d, hour, minute, second, 0, time.UTC)
	if t.Day() != d || d == 0 { // February 30
		return time.Time{}, false
	}
	return t, true
}

var (
	months = []string{
		"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
	}
	shortDays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
	longDays  = []string{
		"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
	}
)

func isName(s string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, s) })
}

// digits reads a number that has a few digits.
func digits(s string) (n int, ok bool) {
	for _, c := range []byte(s) {
		n = 10*n + int(c-'0')
	}
	return n, isDigits(s)
}

func between(least, d, most time.Duration) time.Duration {
	return max(least, min(d, most))
}
