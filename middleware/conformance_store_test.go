package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/cacheguard/cacheguard/middleware"
)

const fresh = `Cache-Control: max-age=600`

// storeShows test which responses may be stored at all: RFC 9111, sections 3, 3.3 and 3.5.
func storeShows() []show {
	shows := []show{
		script("3/get_is_stored", fresh, "-> run", "-> hit"),
		script("3/head_is_not_stored_for_get", fresh, "HEAD -> run", "GET -> run"),
		script("3/post_is_not_stored", fresh+` | Content-Location: /`, "POST -> run", "GET -> run",
			"POST -> run"),
		script("3/put_is_not_stored", fresh, "PUT -> run", "GET -> run"),
		script("3/options_is_not_stored", fresh, "OPTIONS -> run", "OPTIONS -> run", "GET -> run"),
		script("3/unknown_method_is_not_stored", fresh, "BREW -> run", "BREW -> run", "GET -> run"),
		twice("3/nothing_said_is_not_stored", `X: 1`, "run"),
		twice("3/validator_alone_is_not_fresh", `ETag: "a"`, "run/check"),
		twice("3/public_alone_is_not_fresh", `Cache-Control: public`, "run"),
		twice("3/max_age_is_stored", `Cache-Control: max-age=600`, "hit"),
		twice("3/s_maxage_is_stored", `Cache-Control: s-maxage=600`, "hit"),
		twice("3/expires_is_stored", `Expires: {+1h}`, "hit"),
		twice("3/no_store_is_not_stored", `Cache-Control: no-store`, "run"),
		twice("3/private_is_not_stored", `Cache-Control: private, max-age=600`, "run"),
		twice("3/unasked_304_is_not_stored", `304 | `+fresh+` | ETag: "a" || `+fresh, "run"),
		twice("3/must_understand_unknown_status",
			`599 | Cache-Control: max-age=600, must-understand`, "run any"),
		twice("3/must_understand_known_status", `404 | Cache-Control: max-age=600, must-understand`,
			"hit 404"),
		coded("3/interim_response_is_not_stored", fresh, interim),
		coded("3/set_cookie_is_not_shared",
			fresh+` | Set-Cookie: user=1 || `+fresh+` | Set-Cookie: user=2`, setCookie),

		script("3.3/partial_content_is_not_stored",
			`206 | `+fresh+` | Content-Range: bytes 0-4/10 | body 01234 || `+fresh,
			"| Range: bytes=0-4 -> run 206 | body 01234", "-> run | body / 2"),
		script("3.3/unasked_206_is_not_stored",
			`206 | `+fresh+` | Content-Range: bytes 0-4/10 | body 01234 || `+fresh,
			"-> run 206", "-> run"),
		coded("3.3/short_response_is_not_stored", fresh+` || `+fresh, func(s *site) {
			s.replies[0].do = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				io.WriteString(w, "less than that")
			}
			brokenThenRun(s)
		}),
		coded("3.3/aborted_response_is_not_stored", fresh+` || `+fresh, func(s *site) {
			s.replies[0].do = func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "as far as it got")
				panic(http.ErrAbortHandler)
			}
			brokenThenRun(s)
		}),

		twice("3.5/authorization", fresh, "run", "Authorization: Basic YTpi",
			"Authorization: Basic YTpi"),
		twice("3.5/authorization_then_none", fresh, "run", "Authorization: Basic YTpi"),
		twice("3.5/authorization_and_expires", `Expires: {+1h}`, "run",
			"Authorization: Basic YTpi"),
		inBubble(twice("3.5/public_allows_it", fresh+`, public`, "hit", "Authorization: Basic YTpi")),
		inBubble(twice("3.5/must_revalidate_allows_it", fresh+`, must-revalidate`, "hit",
			"Authorization: Basic YTpi")),
		inBubble(twice("3.5/s_maxage_allows_it", `Cache-Control: s-maxage=600`, "hit",
			"Authorization: Basic YTpi")),
		twice("3.5/proxy_revalidate_does_not", fresh+`, proxy-revalidate`, "run",
			"Authorization: Basic YTpi"),
		twice("3.5/immutable_does_not", fresh+`, immutable`, "run", "Authorization: Basic YTpi"),
		script("3.5/allowed_and_stale_is_checked",
			`Cache-Control: max-age=60, must-revalidate | Age: 100 | ETag: "a"`,
			"| Authorization: Basic YTpi -> run", "| Authorization: Basic YTpi -> check"),
	}
	for _, status := range []int{
		200, 203, 204, 299, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 451, 499,
		500, 501, 502, 503, 504, 599,
	} {
		said := fmt.Sprint(status, " | ", fresh)
		shows = append(shows,
			twice(fmt.Sprint("3/status_with_freshness/", status), said, fmt.Sprint("hit ", status)))
		said += ` | Age: 700`
		shows = append(shows,
			twice(fmt.Sprint("3/status_no_longer_fresh/", status), said,
				fmt.Sprint("run ", status)))
	}
	for _, status := range []int{428, 429, 431, 511} {
		shows = append(shows,
			twice(fmt.Sprint("3/status_of_one_client/", status), fmt.Sprint(status, " | ", fresh),
				fmt.Sprint("run ", status)))
	}
	for _, status := range []int{200, 404, 500} {
		said := fmt.Sprint(status, " | X: 1")
		shows = append(shows,
			twice(fmt.Sprint("3/status_without_freshness/", status), said,
				fmt.Sprint("run ", status)))
	}
	byDefault := middleware.Options{DefaultTTL: mustDuration("1m")}
	for _, status := range []int{200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501} {
		shows = append(shows,
			with(byDefault, twice(fmt.Sprint("3/status_by_default/", status), fmt.Sprint(status),
				fmt.Sprint("hit ", status)))...)
	}
	for _, status := range []int{201, 202, 302, 303, 307, 400, 403, 500, 502, 503, 504, 599} {
		shows = append(shows,
			with(byDefault,
				twice(fmt.Sprint("3/status_not_by_default/", status), fmt.Sprint(status),
					fmt.Sprint("run ", status)))...)
	}
	return shows
}

func interim(s *site) {
	s.replies[0].do = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "/ 1")
	}
	s.step("-> run | body / 1 | !Link")
	s.step("-> hit | body / 1 | !Link")
}

func setCookie(s *site) {
	s.step("-> run | Set-Cookie: user=1")
	s.step("-> run | Set-Cookie: user=2")
}

func brokenThenRun(s *site) {
	if a := s.ask(http.MethodGet, "/", nil); a.err == nil {
		s.Errorf("the client was told that %q is everything", a.body)
	}
	s.step("-> run | body / 2")
	s.step("-> hit | body / 2")
}

// fieldShows test which fields are stored: RFC 9111, section 3.1.
func fieldShows() []show {
	var shows []show
	for i, field := range []string{
		`Cache-Control: max-age=600, x="y z"`, `Clear-Site-Data: "cache"`,
		`Content-Encoding: x-none`, `Content-Foo: a`,
		`Content-Language: de`, `Content-Location: /elsewhere`,
		`Content-MD5: N7UdGUp1E+RbVvZSTy1R8g==`,
		`Content-Range: bytes 0-9/10`, `Content-Security-Policy: default-src 'self'`,
		`Content-Type: text/x-own`,
		`ETag: "a"`, `ETag: W/"a"`, `Expires: Thu, 18 Aug 2050 02:01:18 GMT`,
		`Last-Modified: ` + longAgo,
		`Link: </a>; rel=next`,
		`Public-Key-Pins: max-age=1`, `Set-Cookie2: a=b`, `Test-Field: a`, `Vary: X`,
		`WWW-Authenticate: Basic`,
		`X-Frame-Options: deny`, `X-XSS-Protection: 1`, `X-Own: a b c`,
	} {
		shows = append(shows,
			twice(fmt.Sprint("3.1/field_is_stored/", i), fresh+` | `+field,
				`hit | `+storedAs(field)))
	}
	return append(shows,
		twice("3.1/lines_are_stored", fresh+` | X: 1 | Y: 2 | X: 3`, `hit | X: 1, 3 | Y: 2`),
		twice("3.1/content_length_is_stored", fresh+` | Content-Length: 5 | body 12345`,
			`hit | Content-Length: 5`),
		twice("3.1/fields_of_a_connection_are_not_stored",
			fresh+` | Connection: a, B | A: 1 | B: 2 | C: 3`,
			`hit | !A | !B | C: 3 | !Connection`),
		coded("3.1/fields_of_a_proxy_are_not_stored", fresh, func(s *site) {
			notStored(s, "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization")
		}),
		coded("3.1/hop_by_hop_fields_are_not_stored", fresh, func(s *site) {
			notStored(s, "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding",
				"Upgrade")
		}),
		coded("3.1/trailers_stay_trailers", fresh, trailers),
	)
}

func storedAs(field string) string {
	if field == `Cache-Control: max-age=600, x="y z"` {
		return `Cache-Control: max-age=600, ` + field[len("Cache-Control: "):]
	}
	return field
}

// notStored calls the handler without a connection, because net/http uses some of these fields
// itself.
func notStored(s *site, names ...string) {
	h := s.cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			w.Header()[name] = []string{"x"}
		}
		s.handle(w, r)
	}))
	for i := range 2 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Body.String() != "/ 1" {
			s.Fatalf("request %d was answered with %q", i+1, w.Body)
		}
		for _, name := range names {
			if values := w.Result().Header[name]; i == 1 && values != nil {
				s.Errorf("%s: %q was stored", name, values)
			}
		}
	}
}

func trailers(s *site) {
	s.replies[0].do = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum")
		io.WriteString(w, "/ 1")
		w.Header().Set("Sum", "7")
		w.Header().Set(http.TrailerPrefix+"Late", "8")
	}
	for i := range 2 {
		a := s.ask(http.MethodGet, "/", nil)
		if a.err != nil || a.body != "/ 1" || a.runs != 1-i {
			s.Fatalf("answer %d: %v, %q, %d runs", i+1, a.err, a.body, a.runs)
		}
		for _, name := range []string{"Sum", "Late"} {
			if a.header[name] != nil {
				s.Errorf("answer %d has %s among its header fields", i+1, name)
			}
		}
		if !slices.Equal(a.trailer["Sum"], []string{"7"}) ||
			!slices.Equal(a.trailer["Late"], []string{"8"}) {
			s.Errorf("answer %d has trailers %v", i+1, a.trailer)
		}
	}
}
