package middleware

import (
	"net/http"
	"reflect"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const s = time.Second
	const off = time.Duration(-1)
	plain := Options{
		DefaultTTL: off, NegativeTTL: off, StaleWhileRevalidate: off, StaleIfError: off,
		Keep: time.Hour,
	}
	ttl := plain
	ttl.DefaultTTL, ttl.NegativeTTL = time.Minute, 30*s
	stale := plain
	stale.StaleWhileRevalidate, stale.StaleIfError = 7*s, 8*s

	get := http.Header{}
	cc := func(fields string) http.Header { return http.Header{"Cache-Control": {fields}} }
	with := func(h http.Header, name string, lines ...string) http.Header {
		h = h.Clone()
		h[name] = lines
		return h
	}
	const tag = `"abc"`
	auth := http.Header{"Authorization": {"x"}}

	own := func(why string) verdict { return verdict{remember: true, why: why} }
	failed := func(v verdict) verdict { v.failed = true; return v }
	shared := verdict{share: true, store: true, fresh: time.Minute, why: "fresh"}
	guessed := verdict{share: true, store: true, guessed: true, fresh: time.Minute, why: "fresh"}
	but := func(v verdict, set func(v *verdict)) verdict { set(&v); return v }

	for _, c := range []struct {
		name   string
		o      Options
		asks   http.Header
		status int
		h      http.Header
		want   verdict
	}{
		// The response says nothing.
		{"options/no freshness", plain, get, 200, http.Header{}, own("no freshness")},
		{
			"options/nor stored with a validator", plain, get, 200, http.Header{"Etag": {tag}},
			own("no freshness"),
		},
		{"options/DefaultTTL", ttl, get, 200, http.Header{}, guessed},
		{"options/DefaultTTL with a validator", ttl, get, 200, http.Header{"Etag": {tag}},
			but(guessed, func(v *verdict) { v.keep = time.Hour })},
		{"options/NegativeTTL", ttl, get, 404, http.Header{}, but(guessed, func(v *verdict) {
			v.fresh, v.provoked = 30*s, true
		})},
		{
			"options/DefaultTTL is not for every status", ttl, get, 403, http.Header{},
			verdict{why: "no freshness"},
		},
		{
			"5.4/Pragma in a response means nothing", plain, get, 200,
			with(cc("max-age=60"), "Pragma", "no-cache"), shared,
		},
		{"RFC 8246/immutable means nothing", plain, get, 200, cc("max-age=60, immutable"), shared},

		// Section 3.
		{"3/final status", ttl, get, 103, cc("max-age=60"), own("status")},
		{"3/206", ttl, get, 206, cc("max-age=60"), own("status")},
		{"3/304", ttl, get, 304, cc("max-age=60"), own("status")},
		{"3/unknown status with explicit freshness", plain, get, 599, cc("max-age=60"), shared},
		{"3/503 with explicit freshness", plain, get, 503, cc("max-age=60"), shared},
		{"3/299", plain, get, 299, http.Header{"Expires": at(time.Minute)}, shared},
		{"3/302", plain, get, 302, cc("max-age=60"), shared},
		{"RFC 6585/429", plain, get, 429, cc("max-age=60"), verdict{why: "status"}},
		{"RFC 6585/428", plain, get, 428, cc("max-age=60"), verdict{why: "status"}},
		{"RFC 6585/431", plain, get, 431, cc("max-age=60"), verdict{why: "status"}},
		{"RFC 6585/511", plain, get, 511, cc("max-age=60"), failed(verdict{why: "status"})},
		{
			"3/request: no-store", ttl, cc("no-store"), 200, cc("max-age=60"),
			verdict{why: "request: no-store"},
		},
		{
			"3/no-store", ttl, get, 200, with(cc("no-store, max-age=60"), "Etag", tag),
			own("no-store"),
		},
		{"3/private", ttl, get, 200, with(cc("max-age=60, private"), "Etag", tag), own("private")},
		{"3/private, public", ttl, get, 200, cc("max-age=60, public, private"), own("private")},
		{"5.2.2.7/private with fields", plain, get, 200,
			with(cc(`max-age=60, private="x-user"`), "X-User", "1"),
			but(shared, func(v *verdict) { v.drop = []string{"X-User"} })},
		{"5.2.2.4/no-cache with fields", plain, get, 200, cc(`max-age=60, no-cache="a, b"`),
			but(shared, func(v *verdict) { v.drop = []string{"A", "B"} })},
		{
			"our own/Set-Cookie", ttl, get, 200,
			with(cc("public, max-age=60"), "Set-Cookie", "a=b"), own("Set-Cookie"),
		},
		{
			"our own/Set-Cookie in lower case", ttl, get, 200,
			with(cc("max-age=60"), "set-cookie", "a=b"), own("Set-Cookie"),
		},
		{
			"our own/Cache-Control in lower case", ttl, get, 200,
			with(cc("max-age=60"), "cache-control", "private"), own("private"),
		},
		{"5.2.2.7/Set-Cookie listed", plain, get, 200,
			with(cc(`max-age=60, private="set-cookie"`), "Set-Cookie", "a=b"),
			but(shared, func(v *verdict) { v.drop = []string{"Set-Cookie"} })},
		{"5.2.2.7/Set-Cookie with another field listed", plain, get, 200,
			with(cc(`max-age=60, private="a"`), "Set-Cookie", "a=b"),
			own("Set-Cookie")},
		{
			"4.1/Vary: *", ttl, get, 200, with(cc("max-age=60"), "Vary", "Accept", "Foo , *"),
			own("Vary: *"),
		},
		{"4.1/Vary", plain, get, 200, with(cc("max-age=60"), "Vary", "Accept, X-*"), shared},

		// Section 3.5.
		{
			"3.5/Authorization", ttl, auth, 200, with(cc("max-age=60"), "Etag", tag),
			own("Authorization"),
		},
		{
			"3.5/Authorization, Expires", ttl, auth, 200, http.Header{"Expires": at(time.Hour)},
			own("Authorization"),
		},
		{
			"3.5/Authorization, proxy-revalidate", ttl, auth, 200,
			cc("max-age=60, proxy-revalidate"), own("Authorization"),
		},
		{
			"3.5/Authorization, s-maxage that is no number", ttl, auth, 200, cc("s-maxage=x"),
			own("Authorization"),
		},
		{"3.5/Authorization, public", plain, auth, 200, cc("max-age=60, public"), shared},
		{"3.5/Authorization, must-revalidate", plain, auth, 200, cc("max-age=60, must-revalidate"),
			but(shared, func(v *verdict) { v.mustRevalidate = true })},
		{"3.5/Authorization, s-maxage", plain, auth, 200, cc("s-maxage=60"),
			but(shared, func(v *verdict) { v.mustRevalidate = true })},
		{"3.5/Authorization, public in a field that doesn't count", ttl, auth, 200,
			with(cc("public"), "Cdn-Cache-Control", "max-age=60"), own("Authorization")},

		// Section 5.2.2.3.
		{
			"5.2.2.3/must-understand, understood", plain, get, 200,
			cc("must-understand, no-store, max-age=60"), shared,
		},
		{
			"5.2.2.3/must-understand, not understood", plain, get, 599,
			cc("must-understand, max-age=60"), failed(own("must-understand")),
		},
		{"5.2.2.3/must-understand, not understood, no-store", plain, get, 599,
			cc("must-understand, no-store, max-age=60"),
			failed(own("must-understand"))},
		{
			"5.2.2.3/must-understand, private", plain, get, 200,
			cc("must-understand, no-store, private, max-age=60"), own("private"),
		},

		// Only to be revalidated.
		{"5.2.2.4/no-cache", ttl, get, 200, cc("no-cache, max-age=60"),
			verdict{remember: true, mustRevalidate: true, why: "no-cache"}},
		{"5.2.2.4/no-cache with a validator", stale, get, 200,
			with(cc("no-cache, max-age=60, stale-if-error=5"), "Etag", tag),
			verdict{
				remember: true, store: true, mustRevalidate: true, keep: time.Hour, why: "no-cache",
			}},
		{"3/no-cache alone lets no status be stored", plain, get, 402,
			with(cc("no-cache"), "Etag", tag),
			verdict{mustRevalidate: true, why: "no-cache"}},
		{"4.2/max-age=0", stale, get, 200, cc("max-age=0"), verdict{remember: true, why: "stale"}},
		{"4.2/max-age=0 with a validator", stale, get, 200,
			with(cc("max-age=0"), "Last-Modified", at(-time.Hour)...),
			verdict{remember: true, store: true, keep: time.Hour, why: "stale"}},
		{"4.2/max-age=0 with a validator that can't be read", plain, get, 200,
			with(cc("max-age=0"), "Last-Modified", "0"),
			verdict{remember: true, why: "stale"}},
		{"4.2/max-age=0 with a validator that is dropped", plain, get, 200,
			with(cc(`max-age=0, no-cache="etag"`), "Etag", tag),
			verdict{remember: true, drop: []string{"Etag"}, why: "stale"}},
		{"4.2/max-age=0 with a validator, any status", plain, get, 302,
			with(cc("max-age=0"), "Etag", tag),
			verdict{remember: true, store: true, keep: time.Hour, why: "stale"}},
		{"3/must-revalidate with a validator", plain, get, 200,
			with(cc("must-revalidate"), "Etag", tag),
			verdict{
				remember: true, store: true, mustRevalidate: true, keep: time.Hour,
				why: "no freshness",
			}},
		{"3/must-revalidate lets no status be stored", plain, get, 302,
			with(cc("must-revalidate"), "Etag", tag),
			verdict{remember: true, mustRevalidate: true, why: "no freshness"}},
		{"3/public with a validator, any status", plain, get, 302, with(cc("public"), "Etag", tag),
			verdict{remember: true, store: true, keep: time.Hour, why: "no freshness"}},
		{"3/public with a validator", plain, get, 200, with(cc("public"), "Etag", tag),
			verdict{remember: true, store: true, keep: time.Hour, why: "no freshness"}},
		{
			"4.2/too old", stale, get, 200, with(cc("max-age=60"), "Age", "61"),
			verdict{remember: true, fresh: -s, age: 61 * s, why: "stale"},
		},
		{"4.2/as old as it may be", plain, get, 200, with(cc("max-age=60"), "Age", "60"),
			verdict{remember: true, age: 60 * s, why: "stale"}},
		{"4.2/old", plain, get, 200, with(cc("max-age=60"), "Age", "59"),
			but(shared, func(v *verdict) { v.fresh, v.age = s, 59*s })},
		{"5.1/broken Age", plain, get, 200, with(cc("max-age=60"), "Age", "x"), shared},

		// Failures.
		{"our own/500", plain, get, 500, http.Header{}, failed(verdict{why: "no freshness"})},
		{
			"our own/503, validator", ttl, get, 503, with(cc("max-age=0"), "Etag", tag),
			failed(verdict{why: "stale"}),
		},
		{"our own/404", plain, get, 404, http.Header{}, verdict{why: "no freshness"}},
		{"our own/404 with a validator", plain, get, 404, with(cc("must-revalidate"), "Etag", tag),
			verdict{mustRevalidate: true, why: "no freshness"}},
		{"our own/503, window without a lifetime", plain, get, 503,
			cc("public, max-age=0, stale-while-revalidate=60"),
			failed(verdict{why: "stale"})},
		{"our own/302, window without a lifetime", plain, get, 302,
			cc("max-age=0, stale-while-revalidate=60"),
			verdict{
				share: true, store: true, revalidate: time.Minute, why: "stale while revalidate",
			}},
		{"our own/503, private", ttl, get, 503, cc("private"), failed(own("private"))},
		{"our own/503, no-store", ttl, get, 503, cc("no-store"), failed(own("no-store"))},
		{
			"our own/503, Set-Cookie", ttl, get, 503, http.Header{"Set-Cookie": {"a=b"}},
			failed(own("Set-Cookie")),
		},
		{"3.5/503, Authorization", ttl, auth, 503, http.Header{}, failed(own("Authorization"))},
		{
			"5.2.2.4/503, no-cache", ttl, get, 503, cc("no-cache"),
			failed(verdict{mustRevalidate: true, why: "no-cache"}),
		},
		{"RFC 9110 15.1/501 is heuristically cacheable", ttl, get, 501, http.Header{},
			but(guessed, func(v *verdict) { v.fresh, v.provoked = 30*s, true })},
		{"options/windows are not for failures", stale, get, 503, cc("max-age=60"), shared},

		// Who asks.
		{
			"our own/DefaultTTL, Cookie", ttl, http.Header{"Cookie": {"session=1"}}, 200,
			http.Header{}, own("Cookie"),
		},
		{
			"our own/DefaultTTL, an empty Cookie", ttl, http.Header{"Cookie": {""}}, 200,
			http.Header{}, own("Cookie"),
		},
		{
			"our own/NegativeTTL, Cookie", ttl, http.Header{"Cookie": {"session=1"}}, 404,
			http.Header{}, verdict{why: "Cookie"},
		},
		{"our own/Heuristic, Cookie", Options{Heuristic: 0.5}, http.Header{"Cookie": {"session=1"}},
			200,
			http.Header{"Last-Modified": at(-time.Hour)}, own("Cookie")},
		{
			"our own/no options, Cookie", plain, http.Header{"Cookie": {"session=1"}}, 200,
			http.Header{}, own("no freshness"),
		},
		{"our own/DefaultTTL, must-revalidate, Authorization", ttl, auth, 200,
			cc("must-revalidate"),
			verdict{remember: true, mustRevalidate: true, why: "Authorization"}},
		{
			"our own/DefaultTTL, public, Cookie", ttl, http.Header{"Cookie": {"session=1"}}, 200,
			cc("public"), shared,
		},
		{
			"our own/DefaultTTL, Vary: Cookie", ttl, http.Header{"Cookie": {"session=1"}}, 200,
			http.Header{"Vary": {"cookie"}}, guessed,
		},
		{
			"our own/max-age, Cookie", plain, http.Header{"Cookie": {"session=1"}}, 200,
			cc("max-age=60"), shared,
		},
		{"our own/no-cache, Cookie, a date", plain, http.Header{"Cookie": {"session=1"}}, 200,
			with(cc("no-cache"), "Last-Modified", at(-time.Hour)[0]),
			verdict{remember: true, mustRevalidate: true, why: "no-cache"}},
		{"our own/no-cache, Cookie, a tag", Options{Keep: time.Hour},
			http.Header{"Cookie": {"session=1"}}, 200, with(cc("no-cache"), "Etag", tag),
			verdict{
				remember: true, store: true, keep: time.Hour, mustRevalidate: true, why: "no-cache",
			}},

		// Stale windows.
		{"RFC 5861/of the options", stale, get, 200, cc("max-age=60"),
			but(shared, func(v *verdict) { v.revalidate, v.ifError = 7*s, 8*s })},
		{"RFC 5861/of the response", stale, get, 200,
			cc("max-age=60, stale-while-revalidate=1, stale-if-error=2"),
			but(shared, func(v *verdict) { v.revalidate, v.ifError = s, 2*s })},
		{"RFC 5861/one of each", stale, get, 200, cc("max-age=60, stale-while-revalidate=0"),
			but(shared, func(v *verdict) { v.ifError = 8 * s })},
		{"5.2.2.2/must-revalidate", stale, get, 200,
			cc("max-age=60, must-revalidate, stale-while-revalidate=1, stale-if-error=2"),
			but(shared, func(v *verdict) { v.mustRevalidate = true })},
		{"5.2.2.8/proxy-revalidate", stale, get, 200,
			cc("max-age=60, proxy-revalidate, stale-while-revalidate=1"),
			but(shared, func(v *verdict) { v.mustRevalidate = true })},
		{"5.2.2.10/s-maxage", stale, get, 200, cc("s-maxage=60"),
			but(shared, func(v *verdict) { v.mustRevalidate = true })},
		{"5.2.3/s-maxage and windows of the response", stale, get, 200,
			cc("s-maxage=60, stale-while-revalidate=1, stale-if-error=2"),
			but(shared, func(v *verdict) {
				v.revalidate, v.ifError, v.mustRevalidate = s, 2*s, true
			})},
		{"5.2.3/s-maxage and one window of the response", stale, get, 200,
			cc("s-maxage=60, stale-while-revalidate=1"),
			but(shared, func(v *verdict) { v.revalidate, v.mustRevalidate = s, true })},
		{"RFC 9213 2.2/s-maxage that doesn't count", stale, get, 200,
			with(cc("s-maxage=1"), "Cdn-Cache-Control", "max-age=60"),
			but(shared, func(v *verdict) { v.revalidate, v.ifError = 7*s, 8*s })},
		{"RFC 5861 3/max-age=0, stale-while-revalidate", plain, get, 200,
			cc("max-age=0, stale-while-revalidate=5"),
			verdict{share: true, store: true, revalidate: 5 * s, why: "stale while revalidate"}},
		{"RFC 5861 3/within it", plain, get, 200,
			with(cc("max-age=60, stale-while-revalidate=5"), "Age", "64"),
			verdict{
				share: true, store: true, fresh: -4 * s, age: 64 * s, revalidate: 5 * s,
				why: "stale while revalidate",
			}},
		{"RFC 5861 3/after it", plain, get, 200,
			with(cc("max-age=60, stale-while-revalidate=5"), "Age", "65"),
			verdict{remember: true, fresh: -5 * s, age: 65 * s, why: "stale"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.TargetedFields = []string{"CDN-Cache-Control"}
			asks, h := c.asks.Clone(), c.h.Clone()
			r := &http.Request{Method: http.MethodGet, Header: c.asks}
			c.want.refused = isRefusal(c.status) // see TestRefusalRemovesNoStalePage
			if got := newRules(c.o).judge(r, c.status, c.h, noon, noon); !reflect.DeepEqual(got,
				c.want) {
				t.Errorf("%d %q\n got %+v\nwant %+v", c.status, c.h, got, c.want)
			}
			if v := c.want; v.unstored() == 0 != v.store {
				t.Errorf("stored %v, reason %q", v.store, v.why)
			}
			if !reflect.DeepEqual(asks, c.asks) || !reflect.DeepEqual(h, c.h) {
				t.Errorf("%q, %q were changed to %q, %q", asks, h, c.asks, c.h)
			}
		})
	}
	for _, method := range []string{"HEAD", "POST", "OPTIONS", "get", ""} {
		t.Run("3/method "+method, func(t *testing.T) {
			r := &http.Request{Method: method, Header: get}
			if got, want := newRules(ttl).judge(r, 200, cc("max-age=60"), noon, noon),
				(verdict{why: "method"}); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("4.2/fresh for less than the store's unit", func(t *testing.T) {
		h := with(cc("max-age=60"), "Age", "59")
		for took, fresh := range map[time.Duration]time.Duration{
			s - time.Millisecond: time.Millisecond, s - time.Microsecond: 0,
			s + time.Microsecond: 0,
		} {
			got := newRules(plain).judge(&http.Request{Method: "GET", Header: get}, 200, h,
				noon.Add(-took), noon)
			if got.fresh != fresh || got.share != (fresh > 0) {
				t.Errorf("after %v: %+v", took, got)
			}
		}
	})
	t.Run("options/no Keep", func(t *testing.T) {
		none := plain
		none.Keep = off
		got := newRules(none).judge(&http.Request{Method: "GET", Header: get}, 200,
			with(cc("max-age=60"), "Etag", tag), noon, noon)
		if got.keep != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestCanonical(t *testing.T) {
	h := http.Header{"A-B": {"1"}, "X": nil}
	if got := canonical(h); reflect.ValueOf(got).Pointer() != reflect.ValueOf(h).Pointer() {
		t.Error("a canonical header was copied")
	}
	if n := testing.AllocsPerRun(100, func() { canonical(h) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	h = http.Header{"a-b": {"2", "3"}, "A-B": {"1"}, "x": {"4"}}
	if got, want := canonical(h),
		(http.Header{"A-B": {"1", "2", "3"}, "X": {"4"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	if want := (http.Header{"a-b": {"2", "3"}, "A-B": {"1"}, "x": {"4"}}); !reflect.DeepEqual(h,
		want) {
		t.Errorf("the header was changed to %q", h)
	}
}

func TestUnderstood(t *testing.T) {
	for status, want := range map[int]bool{200: true, 205: true, 206: false, 226: false, 301: true,
		304: false, 306: false,
		308: true, 404: true, 418: false, 421: true, 423: false, 426: true, 429: false, 505: true,
		507: false, 599: false} {
		if understood(status) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("max-age=60", "max-age=5, public", "Sun, 06 Nov 1994 08:49:37 GMT", "a=b", "Accept, *",
		"x", uint16(200))
	f.Add(`private="set-cookie"`, "", "0", "a=b", "", "", uint16(503))
	u := newRules(Options{DefaultTTL: time.Minute, Heuristic: 0.1,
		TargetedFields: []string{"CDN-Cache-Control"},
		StaleIfError:   time.Hour, StaleWhileRevalidate: time.Hour, Keep: time.Hour})
	f.Fuzz(func(
		t *testing.T, cacheControl, targeted, expires, cookie, vary, authorization string,
		status uint16,
	) {
		h := http.Header{
			"Cache-Control": {cacheControl}, "Cdn-Cache-Control": {targeted}, "Expires": {expires},
			"Vary": {vary},
		}
		r := &http.Request{Method: http.MethodGet, Header: http.Header{}}
		if cookie != "" {
			h["Set-Cookie"] = []string{cookie}
		}
		if authorization != "" {
			r.Header["Authorization"] = []string{authorization}
		}
		d := u.directives(h)
		checkDirectives(t, d, h)
		checkShared(t, u, d, h)
		v := u.judge(r, int(status), h, noon, noon)
		if v.unstored() == 0 != v.store {
			t.Errorf("%d %q: stored %v, reason %q", status, h, v.store, v.why)
		}
		if !v.share {
			return
		}
		dropped := false
		for _, name := range v.drop {
			dropped = dropped || name == "Set-Cookie"
		}
		if cookie != "" && !dropped {
			t.Errorf("shares a cookie: %+v", v)
		}
		if authorization != "" && !d.public && !d.mustRevalidate && d.sMaxAge == notSaid {
			t.Errorf("shares what was authorized: %+v", v)
		}
	})
}
