package middleware

import (
	"net/http"
	"testing"
	"time"
)

// noon is the time at which responses come in these tests.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at returns a date as a field has it, at this distance from noon.
func at(d time.Duration) []string {
	return []string{noon.Add(d).Format(http.TimeFormat)}
}

func TestParseDate(t *testing.T) {
	date := func(y int, m time.Month, d, hour, minute, second int) time.Time {
		return time.Date(y, m, d, hour, minute, second, 0, time.UTC)
	}
	old := date(1994, time.November, 6, 8, 49, 37)
	for _, c := range []struct {
		name, s string
		want    time.Time // zero: invalid
	}{
		{"RFC 9110 5.6.7/IMF-fixdate", "Sun, 06 Nov 1994 08:49:37 GMT", old},
		{"RFC 9110 5.6.7/RFC 850", "Sunday, 06-Nov-94 08:49:37 GMT", old},
		{"RFC 9110 5.6.7/asctime", "Sun Nov  6 08:49:37 1994", old},
		{"RFC 9110 5.6.7/asctime, two digits", "Wed Nov 16 08:49:37 1994", old.AddDate(0, 0, 10)},
		{"RFC 9110 5.6.7/asctime, leading zero", "Sun Nov 06 08:49:37 1994", old},
		{
			"RFC 9110 5.6.7/50 years ahead", "Thursday, 18-Aug-50 02:01:18 GMT",
			date(2050, time.August, 18, 2, 1, 18),
		},
		{
			"RFC 9110 5.6.7/almost 50 years ahead", "Friday, 20-Nov-76 12:00:00 GMT",
			date(2076, time.November, 20, 12, 0, 0),
		},
		{"RFC 9110 5.6.7/more than 50 years ahead is past", "Monday, 22-Nov-76 12:00:00 GMT",
			date(1976, time.November, 22, 12, 0, 0)},
		{"RFC 9110 5.6.7/leap second", "Sun, 06 Nov 1994 08:49:60 GMT", old.Add(22 * time.Second)},
		{"RFC 9111 4.2/weekday in any case", "SUN, 06 Nov 1994 08:49:37 GMT", old},
		{"RFC 9111 4.2/month in any case", "Sun, 06 nOV 1994 08:49:37 GMT", old},
		{"RFC 9111 4.2/zone in any case", "Sun, 06 Nov 1994 08:49:37 gMT", old},
		{"space around", " Sun, 06 Nov 1994 08:49:37 GMT\t", old},
		{"another day of the week", "Mon, 06 Nov 1994 08:49:37 GMT", old},
		{"far ahead", "Fri, 31 Dec 9999 23:59:59 GMT", date(9999, time.December, 31, 23, 59, 59)},
		{"leap day", "Thu, 29 Feb 2024 00:00:00 GMT", date(2024, time.February, 29, 0, 0, 0)},

		{"RFC 9111 4.2/other zones", "Sun, 06 Nov 1994 08:49:37 UTC", time.Time{}},
		{"RFC 9111 4.2/other zones in letters", "Sun, 06 Nov 1994 08:49:37 AEST", time.Time{}},
		{"RFC 9111 4.2/other zones in digits", "Sun, 06 Nov 1994 08:49:37 +0000", time.Time{}},
		{"RFC 9111 5.3/0", "0", time.Time{}},
		{"RFC 9111 5.3/-1", "-1", time.Time{}},
		{"RFC 9111 5.3/empty", "", time.Time{}},
		{"RFC 9111 5.3/a word", "never", time.Time{}},
		{"RFC 9111 5.3/seconds", "784111777", time.Time{}},
		{"RFC 9111 5.3/no zone", "Sun, 06 Nov 1994 08:49:37", time.Time{}},
		{"RFC 9111 5.3/no comma", "Sun 06 Nov 1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/two digits of a year", "Sun, 06 Nov 94 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/more spaces", "Sun, 06  Nov  1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/dashes", "Sun, 06-Nov-1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/periods", "Sun, 06 Nov 1994 08.49.37 GMT", time.Time{}},
		{"RFC 9111 5.3/one digit of a day", "Sun, 6 Nov 1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/one digit of an hour", "Sun, 06 Nov 1994 8:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/fractions", "Sun, 06 Nov 1994 08:49:37.5 GMT", time.Time{}},
		{"RFC 9111 5.3/a day that is none", "Wed, 30 Feb 2050 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/day 0", "Wed, 00 Mar 2050 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/a month that is none", "Sun, 06 Foo 1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/an hour that is none", "Sun, 06 Nov 1994 24:00:00 GMT", time.Time{}},
		{"RFC 9111 5.3/a minute that is none", "Sun, 06 Nov 1994 08:60:00 GMT", time.Time{}},
		{"RFC 9111 5.3/a second that is none", "Sun, 06 Nov 1994 08:49:61 GMT", time.Time{}},
		{"RFC 9111 5.3/a weekday that is none", "Foo, 06 Nov 1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/a short weekday in RFC 850", "Sun, 06-Nov-94 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/a sign", "Sun, +6 Nov 1994 08:49:37 GMT", time.Time{}},
		{"RFC 9111 5.3/ISO 8601", "1994-11-06T08:49:37Z", time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := parseDate(c.s, noon)
			if ok == c.want.IsZero() || !got.Equal(c.want) {
				t.Errorf("%q: %v, %v, want %v", c.s, got, ok, c.want)
			}
		})
	}
}

func TestLifetime(t *testing.T) {
	const s = time.Second
	plain := Options{}
	ttl := Options{DefaultTTL: time.Minute, NegativeTTL: 30 * s}
	share := Options{DefaultTTL: time.Minute, NegativeTTL: -1, Heuristic: 0.1}
	for _, c := range []struct {
		name   string
		o      Options
		status int
		h      http.Header
		want   time.Duration
		basis  basis
	}{
		{
			"4.2.1/s-maxage", ttl, 200,
			http.Header{"Cache-Control": {"max-age=1, s-maxage=3600"}, "Expires": at(-s)},
			time.Hour, explicit,
		},
		{
			"4.2.1/s-maxage=0", ttl, 200, http.Header{"Cache-Control": {"s-maxage=0, max-age=60"}},
			0, explicit,
		},
		{
			"4.2.1/max-age", ttl, 200, http.Header{"Cache-Control": {"max-age=60"}}, time.Minute,
			explicit,
		},
		{
			"5.3/max-age beside Expires", ttl, 200,
			http.Header{"Cache-Control": {"max-age=60"}, "Expires": at(-s)}, time.Minute, explicit,
		},
		{
			"5.3/max-age=0 beside Expires", ttl, 200,
			http.Header{"Cache-Control": {"max-age=0"}, "Expires": at(time.Hour)}, 0, explicit,
		},
		{
			"5.3/max-age beside Expires: 0", ttl, 200,
			http.Header{"Cache-Control": {"max-age=60"}, "Expires": {"0"}}, time.Minute, explicit,
		},
		{
			"4.2.1/Expires minus Date", ttl, 200,
			http.Header{"Expires": at(20 * s), "Date": at(15 * s)}, 5 * s, explicit,
		},
		{
			"4.2.1/Expires before Date", ttl, 200,
			http.Header{"Expires": at(20 * s), "Date": at(25 * s)}, 0, explicit,
		},
		{
			"4.2.1/Expires is Date", ttl, 200, http.Header{"Expires": at(s), "Date": at(s)}, 0,
			explicit,
		},
		{
			"4.2.1/Expires without Date", ttl, 200, http.Header{"Expires": at(20 * s)}, 20 * s,
			explicit,
		},
		{
			"4.2.1/Expires with a broken Date", ttl, 200,
			http.Header{"Expires": at(20 * s), "Date": {"foo"}}, 20 * s, explicit,
		},
		{
			"4.2.1/Expires with two Dates", ttl, 200,
			http.Header{"Expires": at(20 * s), "Date": append(at(5*s), at(-s)...)}, 20 * s,
			explicit,
		},
		{
			"4.2.1/Expires far ahead", ttl, 200,
			http.Header{"Expires": {"Fri, 31 Dec 9999 23:59:59 GMT"}}, mostTTL, explicit,
		},
		{
			"4.2.1/the first Expires", ttl, 200,
			http.Header{"Expires": append(at(20*s), at(30*s)...)}, 20 * s, explicit,
		},
		{"5.3/Expires: 0", ttl, 200, http.Header{"Expires": {"0"}}, 0, explicit},
		{"5.3/Expires: ", ttl, 200, http.Header{"Expires": {""}}, 0, explicit},
		{"RFC 9213 2.2/Expires beside a targeted field", plain, 200,
			http.Header{"Cdn-Cache-Control": {"none"}, "Expires": at(time.Hour)}, 0, noFreshness},
		{"RFC 9213 2.2/a targeted field", plain, 200,
			http.Header{"Cdn-Cache-Control": {"max-age=5"}, "Cache-Control": {"s-maxage=60"}},
			5 * s, explicit},

		{"4.2.2/nothing", plain, 200, http.Header{"Last-Modified": at(-time.Hour)}, 0, noFreshness},
		{"options/DefaultTTL", ttl, 200, http.Header{}, time.Minute, guessed},
		{"options/DefaultTTL of a redirect", ttl, 301, http.Header{}, time.Minute, guessed},
		{
			"options/DefaultTTL of a status that isn't heuristically cacheable", ttl, 302,
			http.Header{}, 0, noFreshness,
		},
		{
			"options/nor with public", ttl, 302, http.Header{"Cache-Control": {"public"}}, 0,
			noFreshness,
		},
		{"options/NegativeTTL of 404", ttl, 404, http.Header{}, 30 * s, guessed},
		{"options/NegativeTTL of 410", ttl, 410, http.Header{}, 30 * s, guessed},
		{"options/no NegativeTTL", share, 404, http.Header{}, 0, noFreshness},
		{"options/NegativeTTL of 405", ttl, 405, http.Header{}, 30 * s, guessed},
		{"options/NegativeTTL of 501", ttl, 501, http.Header{}, 30 * s, guessed},
		{
			"4.2.2/Last-Modified", share, 200,
			http.Header{"Last-Modified": at(-1000 * s), "Date": at(0)}, 100 * s, guessed,
		},
		{
			"4.2.2/Last-Modified without Date", share, 200,
			http.Header{"Last-Modified": at(-1000 * s)}, 100 * s, guessed,
		},
		{
			"4.2.2/a day at most", share, 200,
			http.Header{"Last-Modified": at(-1000 * 24 * time.Hour)}, 24 * time.Hour, guessed,
		},
		{
			"4.2.2/long ago", share, 200,
			http.Header{"Last-Modified": {"Thu, 01 Jan 0001 00:00:00 GMT"}}, 24 * time.Hour,
			guessed,
		},
		{
			"4.2.2/Last-Modified ahead", share, 200, http.Header{"Last-Modified": at(s)},
			time.Minute, guessed,
		},
		{
			"4.2.2/Last-Modified broken", share, 200, http.Header{"Last-Modified": {"0"}},
			time.Minute, guessed,
		},
		{
			"4.2.2/not with an explicit one", share, 200,
			http.Header{"Last-Modified": at(-time.Hour), "Expires": {"0"}}, 0, explicit,
		},
		{"4.2.2/404", share, 404, http.Header{"Last-Modified": at(-100 * s)}, 10 * s, guessed},
		{
			"our own/404, half a minute at most", share, 404,
			http.Header{"Last-Modified": at(-1000 * s)}, 30 * s, guessed,
		},
		{"4.2.2/599", share, 599, http.Header{"Last-Modified": at(-1000 * s)}, 0, noFreshness},
		{"4.2.2/501", share, 501, http.Header{"Last-Modified": at(-100 * s)}, 10 * s, guessed},
		{
			"our own/501, half a minute at most", share, 501,
			http.Header{"Last-Modified": at(-1000 * s)}, 30 * s, guessed,
		},
		{
			"our own/302 with public", share, 302,
			http.Header{"Last-Modified": at(-1000 * s), "Cache-Control": {"public"}}, 0,
			noFreshness,
		},
		{
			"our own/403 with public", share, 403,
			http.Header{"Last-Modified": at(-1000 * s), "Cache-Control": {"public"}}, 0,
			noFreshness,
		},
		{
			"our own/500 with public", share, 500,
			http.Header{"Last-Modified": at(-1000 * s), "Cache-Control": {"public"}}, 0,
			noFreshness,
		},
		{
			"our own/599 with public", share, 599,
			http.Header{"Last-Modified": at(-1000 * s), "Cache-Control": {"public"}}, 0,
			noFreshness,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.TargetedFields = []string{"CDN-Cache-Control"}
			u := newRules(c.o)
			got, basis := u.lifetime(u.directives(c.h), c.status, c.h, noon)
			if got != c.want || basis != c.basis {
				t.Errorf("%v (%v), want %v (%v)", got, basis, c.want, c.basis)
			}
		})
	}
	t.Run("RFC 9110 15.1/heuristically cacheable", func(t *testing.T) {
		u := newRules(ttl)
		known := map[int]bool{200: true, 203: true, 204: true, 300: true, 301: true, 308: true,
			404: true, 405: true, 410: true, 414: true, 501: true} // and 206, which is never stored
		for status := 200; status < 600; status++ {
			if d, _ := u.lifetime(noDirectives(), status, http.Header{},
				noon); d > 0 != known[status] {
				t.Errorf("%d: %v", status, d)
			}
		}
	})
}

func TestInitialAge(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name string
		h    http.Header
		took time.Duration
		want time.Duration
	}{
		{"4.2.3/made here", http.Header{}, 3 * s, 0},
		{"4.2.3/Age", http.Header{"Age": {"30"}}, 0, 30 * s},
		{"4.2.3/Age counts from the request", http.Header{"Age": {"30"}}, 3 * s, 33 * s},
		{"4.2.3/Age: 0 too", http.Header{"Age": {"0"}}, 3 * s, 3 * s},
		{"4.2.3/response delay", http.Header{"Date": at(0)}, 3 * s, 3 * s},
		{"4.2.3/apparent age", http.Header{"Date": at(-7200 * s)}, 3 * s, 7200 * s},
		{
			"4.2.3/Age above the apparent age", http.Header{"Date": at(-10 * s), "Age": {"25"}}, 0,
			25 * s,
		},
		{
			"4.2.3/Age below the apparent age", http.Header{"Date": at(-30 * s), "Age": {"25"}}, 0,
			30 * s,
		},
		{"4.2.3/Date ahead", http.Header{"Date": at(10 * s)}, 0, 0},
		{"4.2.3/Date ahead, Age", http.Header{"Date": at(10 * s), "Age": {"15"}}, 0, 15 * s},
		{"4.2.3/Date broken", http.Header{"Date": {"foo"}}, 3 * s, 0},
		{"4.2.3/the clock was set back", http.Header{"Date": at(0)}, -5 * s, 0},
		{"4.2.3/long ago", http.Header{"Date": {"Thu, 01 Jan 0001 00:00:00 GMT"}}, 0, mostTTL},
		{"1.2.2/overflow", http.Header{"Age": {"99999999999999999999"}}, 3 * s, mostTTL},
		{"5.1/no number", http.Header{"Age": {"abc"}}, 0, 0},
		{"5.1/no number is no Age", http.Header{"Age": {"abc"}}, 3 * s, 0},
		{
			"5.1/no number beside a Date", http.Header{"Age": {"abc"}, "Date": at(-30 * s)}, 0,
			30 * s,
		},
		{"5.1/empty", http.Header{"Age": {""}}, 0, 0},
		{"5.1/negative", http.Header{"Age": {"-7200"}}, 0, 0},
		{"5.1/decimal", http.Header{"Age": {"7200.0"}}, 0, 0},
		{"5.1/list", http.Header{"Age": {"5, 7200"}}, 0, 5 * s},
		{"5.1/old list", http.Header{"Age": {"7200, 0"}}, 0, 7200 * s},
		{"5.1/lines", http.Header{"Age": {"5", "7200"}}, 0, 5 * s},
		{"5.1/empty members", http.Header{"Age": {"", " ,\t, 7 ,x", "8"}}, 0, 7 * s},
		{"5.1/first member is none", http.Header{"Age": {"x, 7200"}}, 0, 0},
		{"5.1/parameter", http.Header{"Age": {"7200;foo=1"}}, 0, 0},
		{"5.1/quoted", http.Header{"Age": {`"1"`}}, 0, 0},
		{"5.1/space around", http.Header{"Age": {" 7\t"}}, 0, 7 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := noon.Add(900 * time.Millisecond) // Date doesn't show the fraction of a second
			if got := initialAge(c.h, now.Add(-c.took), now); got != c.want {
				t.Errorf("%q after %v: %v, want %v", c.h, c.took, got, c.want)
			}
		})
	}
}

func FuzzExpires(f *testing.F) {
	for _, s := range []string{"0", "Sun, 06 Nov 1994 08:49:37 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
		"Thu, 18 Aug 2050 02:01:18 GMT"} {
		f.Add(s, "Sun, 06 Nov 1994 08:49:37 GMT", s, int64(0))
	}
	u := newRules(Options{DefaultTTL: time.Minute, Heuristic: 0.5})
	f.Fuzz(func(t *testing.T, expires, date, modified string, now int64) {
		when := time.Unix(now%(1<<36), 0).UTC()
		h := http.Header{"Expires": {expires}, "Date": {date}, "Last-Modified": {modified}}
		got, basis := u.lifetime(noDirectives(), 200, h, when)
		end, ok := parseDate(expires, when)
		if got < 0 || got > mostTTL || basis != explicit || !ok && got != 0 {
			t.Errorf("%q at %v: %v (%v)", h, when, got, basis)
		}
		if ok { // a date that can be read is read as the same date after it is written again
			if again, ok := parseDate(end.Format(http.TimeFormat), when); end.Year() >= 1000 &&
				(!ok || !again.Equal(end)) {
				t.Errorf("%q is %v, and that is %v, %v", expires, end, again, ok)
			}
			if _, ok := parseDate(expires+"0", when); ok {
				t.Errorf("%q with a digit more is a date", expires)
			}
		}
		delete(h, "Expires")
		if got, basis = u.lifetime(noDirectives(), 200, h, when); got < 0 || got > mostHeuristic ||
			basis != guessed {
			t.Errorf("%q at %v: %v (%v)", h, when, got, basis)
		}
	})
}

func FuzzAge(f *testing.F) {
	for _, s := range []string{"0", "7200", "-1", "0, 1", "99999999999999999999", " 1", "1.0"} {
		f.Add(s, "Sun, 06 Nov 1994 08:49:37 GMT", int64(time.Second))
	}
	f.Fuzz(func(t *testing.T, age, date string, took int64) {
		sent := noon.Add(-time.Duration(took))
		got := initialAge(http.Header{"Age": {age}, "Date": {date}}, sent, noon)
		if got < 0 || got > mostTTL {
			t.Errorf("Age %q, Date %q, after %v: %v", age, date, time.Duration(took), got)
		}
		if without := initialAge(http.Header{"Date": {date}}, sent, noon); got < without {
			t.Errorf("Age %q makes it younger: %v, without %v", age, got, without)
		}
		once := initialAge(http.Header{"Age": {age}}, sent, noon)
		if twice := initialAge(http.Header{"Age": {age, age}}, sent, noon); twice != once {
			t.Errorf("%q: %v, twice: %v", age, once, twice)
		}
	})
}
