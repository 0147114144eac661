package middleware

import (
	"net/http"
	"testing"
	"time"
)

func TestReadAsked(t *testing.T) {
	nothing := asked{maxAge: notSaid, minFresh: notSaid, maxStale: notSaid, ifError: notSaid}
	for _, c := range []struct {
		name string
		h    http.Header
		set  func(a *asked)
	}{
		{"5.2.1/nothing", http.Header{}, nil},
		{"5.2.1.1/max-age", http.Header{"Cache-Control": {"max-age=5"}}, func(a *asked) {
			a.maxAge = 5 * time.Second
		}},
		{"5.2.1.1/max-age=0", http.Header{"Cache-Control": {"max-age=0"}}, func(a *asked) {
			a.maxAge = 0
		}},
		{"5.2.1.2/max-stale", http.Header{"Cache-Control": {"max-stale=5"}}, func(a *asked) {
			a.maxStale = 5 * time.Second
		}},
		{"5.2.1.2/max-stale without a value", http.Header{"Cache-Control": {"max-stale"}},
			func(a *asked) { a.maxStale = mostTTL }},
		{"5.2.1.3/min-fresh", http.Header{"Cache-Control": {"min-fresh=5"}}, func(a *asked) {
			a.minFresh = 5 * time.Second
		}},
		{"5.2.1.4/no-cache", http.Header{"Cache-Control": {"NO-CACHE"}}, func(a *asked) {
			a.noCache = true
		}},
		{"5.2.1.5/no-store", http.Header{"Cache-Control": {"max-age=1", "no-store"}},
			func(a *asked) { a.noStore, a.maxAge = true, time.Second }},
		{"5.2.1.7/only-if-cached", http.Header{"Cache-Control": {"only-if-cached, max-stale=1"}},
			func(a *asked) { a.onlyIfCached, a.maxStale = true, time.Second }},
		{"RFC 5861 4/stale-if-error", http.Header{"Cache-Control": {"stale-if-error=9"}},
			func(a *asked) { a.ifError = 9 * time.Second }},
		{"5.2/quoted form", http.Header{"Cache-Control": {`max-age="5"`}}, func(a *asked) {
			a.maxAge = 5 * time.Second
		}},
		{"1.2.2/overflow", http.Header{"Cache-Control": {"max-stale=99999999999999999999"}},
			func(a *asked) { a.maxStale = mostTTL }},
		{"the first one counts",
			http.Header{"Cache-Control": {"max-age=5, max-age=6", "max-stale, max-stale=1"}},
			func(a *asked) { a.maxAge, a.maxStale = 5*time.Second, mostTTL }},
		{
			"what can't be read is not said",
			http.Header{"Cache-Control": {"max-age=x, max-stale=, min-fresh, stale-if-error=-1"}},
			nil,
		},
		{
			"5.2/a string is no directive",
			http.Header{"Cache-Control": {`x="no-cache, max-age=0"`}}, nil,
		},
		{"5.4/Pragma", http.Header{"Pragma": {"x, No-Cache"}}, func(a *asked) { a.noCache = true }},
		{"5.4/another Pragma", http.Header{"Pragma": {"no-cachet"}}, nil},
		{
			"5.4/Pragma beside Cache-Control",
			http.Header{"Pragma": {"no-cache"}, "Cache-Control": {"x"}}, nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := nothing
			if c.set != nil {
				c.set(&want)
			}
			if got := readAsked(c.h); got != want {
				t.Errorf("%q\n got %+v\nwant %+v", c.h, got, want)
			}
		})
	}
}

func TestReadAskedAllocatesNothing(t *testing.T) {
	for _, h := range []http.Header{
		{"Accept": {"*/*"}},
		{"Cache-Control": {"max-age=0, no-cache, max-stale"}},
		{"Pragma": {"no-cache"}},
	} {
		if n := testing.AllocsPerRun(100, func() { readAsked(h) }); n != 0 {
			t.Errorf("%q: %v allocations", h, n)
		}
	}
}

func TestTakes(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name           string
		field          string
		age, freshFor  time.Duration
		mustRevalidate bool
		want           bool
	}{
		{"4.2/fresh", "x", 10 * s, 1, false, true},
		{"4.2/fresh, must-revalidate", "x", 10 * s, 1, true, true},
		{"4.2/just stale", "x", 10 * s, 0, false, false},
		{"4.2/stale", "x", 10 * s, -s, false, false},
		{"5.2.1.1/as old as max-age", "max-age=10", 10 * s, s, false, true},
		{"5.2.1.1/older than max-age", "max-age=10", 10*s + 1, s, false, false},
		{"5.2.1.1/max-age=0", "max-age=0", 1, s, false, false},
		{"5.2.1.1/older than max-age, max-stale", "max-age=5, max-stale", 10 * s, s, false, false},
		{"5.2.1.1/max-age, max-stale", "max-age=10, max-stale", 10 * s, -s, false, true},
		{"5.2.1.1/stale, max-age", "max-age=100", 10 * s, -s, false, false},
		{"5.2.1.2/as stale as max-stale", "max-stale=5", 10 * s, -5 * s, false, true},
		{"5.2.1.2/staler than max-stale", "max-stale=5", 10 * s, -5*s - 1, false, false},
		{"5.2.1.2/any staleness", "max-stale", 10 * s, -5000 * s, false, true},
		{"5.2.2.2/max-stale, must-revalidate", "max-stale", 10 * s, -s, true, false},
		{"5.2.2.2/max-stale, must-revalidate, just stale", "max-stale", 10 * s, 0, true, false},
		{"5.2.1.3/fresh for long enough", "min-fresh=5", 10 * s, 5 * s, false, true},
		{"5.2.1.3/not fresh for long enough", "min-fresh=5", 10 * s, 5*s - 1, false, false},
		{"5.2.1.3/min-fresh beside max-stale", "min-fresh=5, max-stale", 10 * s, s, false, false},
		{"5.2.1.4/no-cache", "no-cache, max-stale", 10 * s, 100 * s, false, false},
		{"5.2.1.5/no-store is about storing", "no-store", 10 * s, 100 * s, false, true},
		{"5.2.1.7/only-if-cached changes nothing here", "only-if-cached", 10 * s, -s, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := readAsked(http.Header{"Cache-Control": {c.field}})
			if got := a.takes(c.age, c.freshFor, c.mustRevalidate); got != c.want {
				t.Errorf("%q, age %v, fresh for %v: %v", c.field, c.age, c.freshFor, got)
			}
		})
	}
}

func TestTakesMeanwhile(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		field     string
		age, over time.Duration
		want      bool
	}{
		{"x", 10 * s, 5 * s, true},
		{"no-cache", 10 * s, 5 * s, false},
		{"no-store", 10 * s, 5 * s, true},
		{"min-fresh=0", 10 * s, 5 * s, false},
		{"max-age=100", 10 * s, 5 * s, false}, // RFC 9111, section 5.2.1.1: no stale response
		{"max-age=100, max-stale=5", 10 * s, 5 * s, true},
		{"max-age=9, max-stale=5", 10 * s, 5 * s, false},
		{"max-stale=5", 10 * s, 5 * s, true},
		{"max-stale=4", 10 * s, 5 * s, false},
		{"max-stale", 10 * s, 5 * s, true},
	} {
		a := readAsked(http.Header{"Cache-Control": {c.field}})
		if got := a.takesMeanwhile(c.age, c.over); got != c.want {
			t.Errorf("%q, age %v, stale for %v: %v", c.field, c.age, c.over, got)
		}
	}
}

func FuzzAsked(f *testing.F) {
	f.Add("max-age=0, no-cache", "no-cache", int64(5), int64(-1))
	f.Add(`max-stale, min-fresh="5`, "", int64(-5), int64(1<<62))
	f.Fuzz(func(t *testing.T, field, pragma string, age, freshFor int64) {
		a := readAsked(http.Header{"Cache-Control": {field}, "Pragma": {pragma}})
		if alone := readAsked(http.Header{"Cache-Control": {field}}); a != alone {
			t.Errorf("%q: Pragma %q counts", field, pragma)
		}
		for _, d := range []time.Duration{a.maxAge, a.minFresh, a.maxStale, a.ifError} {
			if d != notSaid && (d < 0 || d > mostTTL) {
				t.Errorf("%q: %+v", field, a)
			}
		}
		old, left := time.Duration(age), time.Duration(freshFor)
		if a.takes(old, left, true) && (left <= 0 || a.noCache) {
			t.Errorf("%q takes what must be revalidated", field)
		}
		if a.takes(old, left, false) && left <= 0 && a.maxStale == notSaid {
			t.Errorf("%q takes what is stale", field)
		}
		if a.takes(old, left, true) && !a.takes(old, left, false) {
			t.Errorf("%q takes something only if it must be revalidated", field)
		}
		readAsked(http.Header{"Pragma": {field, pragma}})
	})
}
