package middleware

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// said returns the directives of a response that has only the directives that set sets.
func said(set func(d *directives)) directives {
	d := noDirectives()
	d.present = true
	set(&d)
	return d
}

func TestCacheControl(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  directives
	}{
		{"5.2/empty", []string{"", " , ,"}, noDirectives()},
		{"5.2/all lines are one list", []string{"no-store", "max-age=5"},
			said(func(d *directives) { d.noStore, d.maxAge = true, 5*time.Second })},
		{"5.2/names in any case", []string{"No-StOrE, MAX-AGE=5, S-MaxAge=6, PUBLIC"},
			said(func(d *directives) {
				d.noStore, d.public, d.maxAge, d.sMaxAge = true, true, 5*time.Second, 6*time.Second
			})},
		{"5.2/quoted form is accepted", []string{`max-age="3600"`}, said(func(d *directives) {
			d.maxAge = time.Hour
		})},
		{"5.2/escapes in a quoted form", []string{`max-age="36\00"`}, said(func(d *directives) {
			d.maxAge = time.Hour
		})},
		{"5.2/a quoted string is no directive", []string{`ext="max-age=3600, no-store", max-age=1`},
			said(func(d *directives) { d.maxAge = time.Second })},
		{"5.2/nor after the real one", []string{`max-age=1, ext="max-age=3600"`},
			said(func(d *directives) { d.maxAge = time.Second })},
		{"5.2/an escaped quotation mark ends no string",
			[]string{`ext="\", max-age=3600, \"", max-age=1`},
			said(func(d *directives) { d.maxAge = time.Second })},
		{"5.2/flags",
			[]string{"must-revalidate, proxy-revalidate, must-understand, immutable, no-transform"},
			said(func(d *directives) {
				d.mustRevalidate, d.proxyRevalidate, d.mustUnderstand = true, true, true
			})},
		{"5.2.3/unknown directives are ignored", []string{`foo, bar=1, baz="x", max-age=5`},
			said(func(d *directives) { d.maxAge = 5 * time.Second })},
		{"RFC 5861/windows", []string{"stale-while-revalidate=7, stale-if-error=8"},
			said(func(d *directives) { d.revalidate, d.ifError = 7*time.Second, 8*time.Second })},

		{"1.2.2/leading zeros", []string{"max-age=003600"}, said(func(d *directives) {
			d.maxAge = time.Hour
		})},
		{"1.2.2/2^31", []string{"max-age=2147483648"}, said(func(d *directives) {
			d.maxAge = mostTTL
		})},
		{"1.2.2/more than 64 bits", []string{"max-age=" + strings.Repeat("9", 99)},
			said(func(d *directives) { d.maxAge = mostTTL })},

		{"4.2.1/the first max-age counts", []string{"max-age=1800, max-age=1"},
			said(func(d *directives) { d.maxAge = 30 * time.Minute })},
		{"4.2.1/of all lines", []string{"max-age=1", "max-age=1800"}, said(func(d *directives) {
			d.maxAge = time.Second
		})},
		{"4.2.1/also if it can't be read", []string{"max-age=x, max-age=1800"},
			said(func(d *directives) {
				d.maxAge = 0
			})},
		{"4.2.1/decimal is stale", []string{"max-age=3600.0"}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/negative is stale", []string{"max-age=-3600"}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{
			"4.2.1/no value is stale", []string{"max-age"},
			said(func(d *directives) { d.maxAge = 0 }),
		},
		{"4.2.1/nothing after = is stale", []string{"max-age="}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/an empty string is stale", []string{`max-age=""`}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/letters are stale", []string{"max-age=a3600", "max-age=1"},
			said(func(d *directives) {
				d.maxAge = 0
			})},
		{"4.2.1/trailing letters are stale", []string{"max-age=3600a"}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/single quotes are stale", []string{"max-age='3600'"}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/space before = is stale", []string{"max-age =3600"}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/space after = is stale", []string{"max-age= 3600"}, said(func(d *directives) {
			d.maxAge = 0
		})},
		{"4.2.1/s-maxage that is no number", []string{"s-maxage=x, max-age=60"},
			said(func(d *directives) {
				d.sMaxAge, d.sMaxAgeBroken, d.maxAge = 0, true, time.Minute
			})},
		{"4.2.1/a window that is no number is none",
			[]string{"stale-while-revalidate=x, stale-if-error"},
			said(func(d *directives) { d.revalidate, d.ifError = 0, 0 })},

		{"strict/no-store with a value", []string{"no-store=1"}, said(func(d *directives) {
			d.noStore = true
		})},
		{"strict/private and a semicolon", []string{"private; max-age=60"},
			said(func(d *directives) {
				d.private = true
			})},
		{"strict/max-age and a semicolon", []string{"max-age=60; private"},
			said(func(d *directives) {
				d.maxAge = 0
			})},
		{"strict/private and a word", []string{"private max-age=60"}, said(func(d *directives) {
			d.private = true
		})},
		{
			"strict/public with a value is nothing", []string{"public=1"},
			said(func(d *directives) {}),
		},
		{"strict/a string without an end hides no no-store", []string{`ext="a, no-store`},
			said(func(d *directives) { d.noStore = true })},
		{"strict/and brings nothing that permits", []string{`ext="a, public, max-age=60`},
			said(func(d *directives) { d.maxAge = 0 })},
		{"strict/nor on the next line", []string{`ext="a`, "max-age=60, private"},
			said(func(d *directives) { d.maxAge, d.private = time.Minute, true })},
		{"strict/rubbish between", []string{`@@ "x, no-store" ;, ==, max-age=5, "`},
			said(func(d *directives) { d.maxAge = 5 * time.Second })},

		{"5.2.2.7/private", []string{"private"}, said(func(d *directives) { d.private = true })},
		{"5.2.2.7/private with fields", []string{`private="set-cookie, X-User"`},
			said(func(d *directives) { d.fields = []string{"Set-Cookie", "X-User"} })},
		{"5.2.2.4/no-cache", []string{"no-cache"}, said(func(d *directives) { d.noCache = true })},
		{"5.2.2.4/no-cache with fields", []string{`no-cache="a,, b ,", private="B"`},
			said(func(d *directives) { d.fields = []string{"A", "B"} })},
		{"4.2.1/without fields counts more", []string{`private="a", private, private="b"`},
			said(func(d *directives) { d.private, d.fields = true, []string{"A", "B"} })},
		{"4.2.1/without fields counts more, no-cache",
			[]string{`no-cache="a"`, `no-cache, no-cache="a"`},
			said(func(d *directives) { d.noCache, d.fields = true, []string{"A"} })},
		{"strict/no fields", []string{`private="", no-cache=" , "`},
			said(func(d *directives) { d.private, d.noCache = true, true })},
		{"strict/what can be no field", []string{`private="a b", no-cache="a, @"`},
			said(func(d *directives) { d.private, d.noCache = true, true })},
		{"strict/fields without an end", []string{`private="a`}, said(func(d *directives) {
			d.private = true
		})},
		{"strict/Vary is not a field to drop", []string{`private="vary"`},
			said(func(d *directives) {
				d.private = true
			})},
		{"5.2/a field without quotation marks", []string{"private=x-there"},
			said(func(d *directives) { d.fields = []string{"X-There"} })},
		{"strict/unless there is no such field", []string{"private=true, no-cache=1"},
			said(func(d *directives) { d.private, d.noCache = true, true })},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{"Cache-Control": c.lines, "X-There": {"1"}, "Pragma": {"no-cache"}}
			if got := newRules(Options{}).directives(h); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q\n got %+v\nwant %+v", c.lines, got, c.want)
			}
		})
	}
}

func TestTargeted(t *testing.T) {
	targeted := func(set func(d *directives)) directives {
		return said(func(d *directives) { d.targeted = true; set(d) })
	}
	ignored := said(func(d *directives) { d.noStore = true })
	for _, c := range []struct {
		name  string
		first []string
		lines []string
		want  directives
	}{
		{"RFC 9213 2.2/it takes the place of Cache-Control", nil, []string{"max-age=60"},
			targeted(func(d *directives) { d.maxAge = time.Minute })},
		{"RFC 9213 2.2/the first one of the list counts", []string{"max-age=1"},
			[]string{"max-age=60"},
			targeted(func(d *directives) { d.maxAge = time.Second })},
		{"RFC 9213 2.2/if it can be read", []string{"max-age=="}, []string{"max-age=60"},
			targeted(func(d *directives) { d.maxAge = time.Minute })},
		{"RFC 9213 2.1/absent", nil, nil, ignored},
		{"RFC 9213 2.1/empty is absent", nil, []string{" "}, ignored},
		{"RFC 9213 2.1/not parsed is absent", nil, []string{"max-age=60,"}, ignored},
		{"RFC 9213 2.1/names in upper case are not parsed", nil, []string{"Max-Age=60"}, ignored},
		{"RFC 9213 2.1/space before = is not parsed", nil, []string{"max-age =60"}, ignored},
		{
			"RFC 9213 2.1/16 digits are not parsed", nil, []string{"max-age=9999999999999999"},
			ignored,
		},
		{"RFC 9213 2.1/15 digits", nil, []string{"max-age=999999999999999"},
			targeted(func(d *directives) { d.maxAge = mostTTL })},
		{"RFC 9213 2.1/lines are one dictionary", nil, []string{"max-age=60", "private"},
			targeted(func(d *directives) { d.maxAge, d.private = time.Minute, true })},
		{"RFC 9651 3.2/the last member of a name counts", nil, []string{"max-age=60, max-age=1"},
			targeted(func(d *directives) { d.maxAge = time.Second })},
		{"RFC 9213 2.1/parameters are ignored", nil, []string{`max-age=60;x=1, no-store;foo="a"`},
			targeted(func(d *directives) { d.maxAge, d.noStore = time.Minute, true })},
		{"RFC 9213 2.1/decimal is stale", nil, []string{"max-age=60.0"},
			targeted(func(d *directives) {
				d.maxAge = 0
			})},
		{"RFC 9213 2.1/negative is stale", nil, []string{"max-age=-60"},
			targeted(func(d *directives) {
				d.maxAge = 0
			})},
		{"RFC 9213 2.1/a string is no integer", nil, []string{`max-age="60"`},
			targeted(func(d *directives) {
				d.maxAge = 0
			})},
		{"RFC 9213 2.1/a list is no integer", nil, []string{"max-age=(60)"},
			targeted(func(d *directives) {
				d.maxAge = 0
			})},
		{"RFC 9213 2.1/false is not there", nil, []string{"no-store=?0, private=?0, public=?1"},
			targeted(func(d *directives) { d.public = true })},
		{"strict/no-store with a value", nil,
			[]string{"no-store=1, private=(a b), must-revalidate=x"},
			targeted(func(d *directives) {
				d.noStore, d.private, d.mustRevalidate = true, true, true
			})},
		{"RFC 9213 2.1/fields are a string", nil, []string{`private="set-cookie", no-cache="a"`},
			targeted(func(d *directives) { d.fields = []string{"Set-Cookie", "A"} })},
		{
			"RFC 9213 3.1/none says that nothing is said", nil, []string{"none"},
			targeted(func(d *directives) {}),
		},
		{"RFC 9213 2.2/extensions", nil,
			[]string{"s-maxage=1, stale-while-revalidate=2, stale-if-error=3, must-understand"},
			targeted(func(d *directives) {
				d.sMaxAge, d.revalidate, d.ifError, d.mustUnderstand = time.Second, 2*time.Second,
					3*time.Second, true
			})},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newRules(Options{
				TargetedFields: []string{"own-cache-control", "CDN-Cache-Control"},
			})
			h := http.Header{"Cache-Control": {"no-store"}}
			if c.first != nil {
				h["Own-Cache-Control"] = c.first
			}
			if c.lines != nil {
				h["Cdn-Cache-Control"] = c.lines
			}
			if got := u.directives(h); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q\n got %+v\nwant %+v", c.lines, got, c.want)
			}
		})
	}
	t.Run("RFC 9213 2.2/fields not on the list change nothing", func(t *testing.T) {
		u := newRules(Options{TargetedFields: []string{}})
		h := http.Header{"Cache-Control": {"no-store"}, "Cdn-Cache-Control": {"max-age=60"}}
		if got := u.directives(h); !reflect.DeepEqual(got, ignored) {
			t.Errorf("got %+v", got)
		}
	})
}

// checkDirectives checks properties that all directives have.
func checkDirectives(t *testing.T, d directives, h http.Header) {
	t.Helper()
	for _, n := range []time.Duration{d.maxAge, d.sMaxAge, d.revalidate, d.ifError} {
		if n != notSaid && (n < 0 || n > mostTTL || n%time.Second != 0) {
			t.Errorf("%v is no number of seconds", n)
		}
	}
	for i, name := range d.fields {
		if !isToken(name) || name != http.CanonicalHeaderKey(name) || name == "Vary" {
			t.Errorf("field %q of %q", name, h)
		}
		for _, other := range d.fields[:i] {
			if name == other {
				t.Errorf("field %q is listed twice", name)
			}
		}
	}
}

// checkShared fails the test if a verdict shares a response that a directive forbids to share.
func checkShared(t *testing.T, u *rules, d directives, h http.Header) {
	t.Helper()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := &http.Request{Method: http.MethodGet, Header: http.Header{}}
	for _, status := range []int{200, 404, 503, 599} {
		v := u.judge(r, status, h, now, now)
		if (d.private || d.noStore && !d.mustUnderstand) && (v.share || v.store) {
			t.Errorf("%d with %q: %+v", status, h, v)
		}
		if d.noCache && (v.share || v.fresh > 0) {
			t.Errorf("%d with %q: %+v", status, h, v)
		}
		if v.fresh > mostTTL || v.revalidate > mostTTL || v.ifError > mostTTL || v.age < 0 ||
			v.age > mostTTL ||
			v.revalidate < 0 || v.ifError < 0 || v.keep < 0 {
			t.Errorf("%d with %q: %+v", status, h, v)
		}
		if d.maxAge == 0 && d.sMaxAge == notSaid && v.fresh > 0 || v.remember && v.share ||
			v.why == "" {
			t.Errorf("%d with %q: %+v", status, h, v)
		}
		if again := u.judge(r, status, h, now, now); !reflect.DeepEqual(v, again) {
			t.Errorf("%d with %q: first %+v, then %+v", status, h, v, again)
		}
	}
}

func FuzzCacheControl(f *testing.F) {
	for _, s := range []string{"", "max-age=60", `private="a, b", no-cache`, `ext="\", no-store`,
		"s-maxage =1;x",
		"must-understand, no-store, max-age=9999999999999999999",
		`max-age="5", public, stale-while-revalidate=60`} {
		f.Add(s, "no-store")
	}
	u := newRules(Options{
		DefaultTTL: time.Minute, StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour,
	})
	f.Fuzz(func(t *testing.T, first, second string) {
		h := http.Header{"Cache-Control": {first, second}}
		d := readCacheControl(h)
		checkDirectives(t, d, h)
		checkShared(t, u, d, h)

		// A directive that forbids applies at any position.
		for _, lines := range [][]string{
			{first, "no-store, private"}, {"no-store", first, "private"},
		} {
			if d := readCacheControl(http.Header{"Cache-Control": lines}); !d.noStore ||
				!d.private {
				t.Errorf("%q: %+v", lines, d)
			}
		}
		// Without quoted strings, two lines mean the same as one line.
		if strings.Count(first, `"`) == 0 {
			one := readCacheControl(http.Header{"Cache-Control": {first + "," + second}})
			if !reflect.DeepEqual(one, d) {
				t.Errorf("%q, %q: %+v, on one line %+v", first, second, d, one)
			}
		}
	})
}

func FuzzTargeted(f *testing.F) {
	for _, s := range []string{"", "max-age=60", `private="a, b", no-cache`, "max-age=(1 2);x",
		"no-store=?0, a=:YQ==:, b=@1",
		`c=%"f%c3%bc"`, "max-age=-1, s-maxage=1.5", "must-revalidate=?1;y=2, public"} {
		f.Add(s)
	}
	u := newRules(Options{TargetedFields: []string{"CDN-Cache-Control"}, DefaultTTL: time.Minute})
	f.Fuzz(func(t *testing.T, line string) {
		h := http.Header{"Cdn-Cache-Control": {line}, "Cache-Control": {"private"}}
		d := u.directives(h)
		checkDirectives(t, d, h)
		checkShared(t, u, d, h)
		if !d.targeted && !d.private {
			t.Errorf("%q: neither of the fields counts", line)
		}
		if d.targeted && d.private && !strings.Contains(line, "private") {
			t.Errorf("%q: Cache-Control counts beside it", line)
		}
	})
}
