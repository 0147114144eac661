package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

const longAgo = `Wed, 01 Jan 2020 00:00:00 GMT`

// staleDate is a stored response that is no longer fresh and has only a date as validator.
const staleDate = `Cache-Control: max-age=60 | Age: 100 | Last-Modified: ` + longAgo

// validateShows test how the cache asks the handler whether a stored response is still good: RFC
// 9111, sections 4.3.1, 4.3.3, 4.3.4.
func validateShows() []show {
	const variant = `Cache-Control: max-age=60 | ETag: "a" | Vary: Foo`
	return []show{
		script("4.3.1/entity_tag_is_sent", stale, "-> run",
			`-> check | saw If-None-Match: "a" | saw !If-Modified-Since`),
		script("4.3.1/weak_tag_is_sent", `Cache-Control: max-age=60 | Age: 100 | ETag: W/"a"`,
			"-> run",
			`-> check | saw If-None-Match: W/"a"`),
		script("4.3.1/last_modified_is_sent", staleDate, "-> run",
			`-> check | saw If-Modified-Since: `+longAgo),
		script("4.3.1/both_are_sent", stale+` | Last-Modified: `+longAgo, "-> run",
			`-> check | saw If-None-Match: "a" | saw If-Modified-Since: `+longAgo),
		script("4.3.1/nothing_is_made_up", `Cache-Control: max-age=60`, "-> run", "wait 61s",
			`-> run | saw !If-None-Match | saw !If-Modified-Since`),
		script("4.3.1/tag_of_the_client_does_not_take_its_place", stale, "-> run",
			`| If-None-Match: "x" -> check | saw If-None-Match*="a"`),
		script("4.3.1/date_of_the_client_is_not_mixed_in", stale, "-> run",
			`| If-Modified-Since: {now} -> check any | saw If-None-Match: "a" | saw !If-Modified-Since`),
		script("4.3.1/date_of_the_client_does_not_take_its_place", staleDate, "-> run",
			`| If-Modified-Since: {-1h} -> check any | saw If-Modified-Since: `+longAgo),
		script("4.3.1/fields_of_the_request_are_sent", stale+` | Vary: Foo`, "| Foo: 1 -> run",
			`| Foo: 1 | Bar: 2 -> check | saw Foo: 1 | saw Bar: 2`),
		script("4.3.1/in_the_background_selecting_fields_are_sent",
			`Cache-Control: max-age=60, stale-while-revalidate=600 | ETag: "a" | Vary: Foo`,
			"/a?b=c | Foo: 1 -> run", "wait 61s",
			`/a?b=c | Foo: 1 -> stale | saw Foo: 1 | saw If-None-Match: "a" | saw GET`),

		script("4.3.3/not_modified_makes_it_fresh", stale+` || `+fresh+` | ETag: "a"`, "-> run",
			"-> check | body / 1",
			"-> hit | body / 1"),
		script("4.3.3/full_response_is_used", stale+` || `+fresh+` | ETag: "b"`, "-> run",
			`-> run | body / 2 | ETag: "b"`,
			"-> hit | body / 2"),
		script("4.3.3/full_response_is_used_if_it_may_not_be_stored",
			stale+` || Cache-Control: no-store`, "-> run",
			"-> run | body / 2", "-> run | body / 3"),
		script("4.3.3/full_error_is_used", stale+` || 404 | `+fresh, "-> run",
			"-> run 404 | body / 2",
			"-> hit 404 | body / 2"),
		script("4.3.3/server_error_is_passed_on", stale+` || 500`, "-> run",
			"-> run 500 | body / 2"),

		script("4.3.4/other_strong_tag_updates_nothing",
			stale+` | Last-Modified: `+longAgo+` || 304 | ETag: "b" | X: new | `+
				fresh+` || `+fresh, "-> run", "-> any | X!=new", "-> any | X!=new"),
		script("4.3.4/not_modified_to_one_tag_is_about_that",
			stale+` || 304 | ETag: "b" | X: new | `+fresh, "-> run",
			`-> any | X!=new | ETag: "a"`, `-> hit | X!=new | ETag: "a"`),
		script("4.3.4/same_strong_tag_updates", stale+` || `+fresh+` | ETag: "a" | X: new`,
			"-> run", "-> check | X: new",
			"-> hit | X: new | body / 1"),
		script("4.3.4/same_weak_tag_updates",
			`Cache-Control: max-age=60 | Age: 100 | ETag: W/"a" || `+fresh+
				` | ETag: W/"a" | X: new`, "-> run", "-> check | X: new",
			"-> hit | X: new | body / 1"),
		script("4.3.4/same_date_updates",
			staleDate+` || `+fresh+` | Last-Modified: `+longAgo+` | X: new`, "-> run",
			"-> check | X: new", "-> hit | X: new | body / 1"),
		script("4.3.4/only_the_variant_that_was_asked_about",
			variant+` || `+variant+` || `+variant+` | X: new`,
			"| Foo: 1 -> run",
			"| Foo: 2 -> run", "wait 61s", "| Foo: 1 -> check | X: new | body / 1",
			"| Foo: 2 -> check | body / 2"),
		script("4.3.4/update_can_end_sharing", stale+` || Cache-Control: private | ETag: "a"`,
			"-> run", "-> check any",
			"-> run/check"),
		script("4.3.4/update_can_end_storing", stale+` || Cache-Control: no-store | ETag: "a"`,
			"-> run", "-> check any",
			"-> run"),
		script("4.3.4/cookie_of_one_is_not_stored",
			stale+` || `+fresh+` | ETag: "a" | Set-Cookie: user=1 || `+fresh, "-> run",
			"-> any any", "-> any | !Set-Cookie"),
	}
}

// updateShows test what a 304 changes: RFC 9111, section 3.2.
func updateShows() []show {
	shows := []show{
		script("3.2/fields_it_lacks_are_kept", stale+` | X: 1 || `+fresh+` | ETag: "a"`, "-> run",
			"-> check | X: 1",
			"-> hit | X: 1"),
		script("3.2/lines_are_replaced", stale+` | X: 1 | X: 2 || `+fresh+` | ETag: "a" | X: 3`,
			"-> run", "-> check | X: 3",
			"-> hit | X: 3"),
		script("3.2/what_is_not_stored_is_not_updated",
			stale+` || `+fresh+` | ETag: "a" | Connection: a | A: 1 | `+
				`Proxy-Authenticate: Basic`, "-> run", "-> check",
			"-> hit | !A | !Connection | !Proxy-Authenticate"),
		script("3.2/private_fields_are_not_updated",
			stale+` || Cache-Control: max-age=600, private="secret" | ETag: "a" | `+
				`Secret: 1`, "-> run", "-> check", "-> hit | !Secret"),
		script("3.2/age_is_that_of_the_update", stale+` || `+fresh+` | ETag: "a" | Age: 30`,
			"-> run", "-> check",
			"-> hit | Age>=30 | Age<=40"),
	}
	for i, field := range []string{
		`Cache-Control: max-age=60`, `Clear-Site-Data: "cache"`, `Content-Foo: a`,
		`Content-Language: de`,
		`Content-Location: /elsewhere`, `Content-Security-Policy: default-src 'self'`,
		`Content-Type: text/x-own`,
		`Expires: Thu, 18 Aug 2050 02:01:18 GMT`, `Last-Modified: ` + longAgo,
		`Link: </a>; rel=next`,
		`Public-Key-Pins: max-age=1`, `Set-Cookie2: a=b`, `Test-Field: a`, `X-Frame-Options: deny`,
		`X-XSS-Protection: 1`,
	} {
		name, _, _ := strings.Cut(field, ":")
		before := stale + ` | ` + name + `: before`
		after := `Cache-Control: max-age=600 | ETag: "a" | ` + field
		if name == "Cache-Control" {
			before, after = stale, `ETag: "a" | `+field
		}
		if name == "Expires" || name == "Last-Modified" {
			before = stale + ` | ` + name + `: Thu, 02 Jan 2020 00:00:00 GMT`
		}
		shows = append(shows,
			script(fmt.Sprint("3.2/field_is_updated/", i), before+` || `+after, "-> run",
				"-> check | "+field, "-> hit | "+field),
			script(fmt.Sprint("3.2/field_is_added/", i), stale+` || `+after, "-> run",
				"-> check | "+field, "-> hit | "+field))
	}
	for i, field := range []string{
		`Content-Encoding: x-none`, `Content-Length: 5`, `Content-MD5: N7UdGUp1E+RbVvZSTy1R8g==`,
		`Content-Range: bytes 0-9/10`,
	} {
		name, _, _ := strings.Cut(field, ":")
		other := map[string]string{"Content-Length": "7"}[name]
		if other == "" {
			other = "other"
		}
		shows = append(shows,
			script(fmt.Sprint("3.2/field_is_not_updated/", i),
				stale+` | body 12345 | `+field+` || `+fresh+
					` | ETag: "a" | `+name+`: `+other, "-> run | body 12345",
				"-> check | body 12345 | "+field,
				"-> hit | body 12345 | "+field))
	}
	return shows
}

// headShows test what the response to a HEAD says about the stored response to a GET: RFC 9111,
// section 4.3.5.
func headShows() []show {
	const forward = "HEAD | Cache-Control: no-cache "
	// A client may have the response before it is stored, and a HEAD doesn't change a response that
	// was stored after the HEAD began.
	const later = "wait 1s"
	tagged := fresh + ` | ETag: "a"`
	return []show{
		script("4.3.5/other_tag", tagged+` || `+fresh+` | ETag: "b"`, "-> run", later,
			forward+"-> run",
			`-> any | ETag: "b" | body!=/ 1`),
		script("4.3.5/other_date",
			fresh+` | Last-Modified: `+longAgo+` || `+fresh+` | Last-Modified: {-1h}`, "-> run",
			later, forward+"-> run", "-> any | body!=/ 1"),
		script("4.3.5/other_length",
			fresh+` | Content-Length: 5 | body 12345 || `+fresh+
				` | Content-Length: 7 | body 1234567`,
			"-> run", later, forward+"-> run", "-> any | body 1234567"),
		script("4.3.5/same_tag_updates", tagged+` || always | `+tagged+` | X: new`, "-> run", later,
			forward+"-> run",
			"-> any | X: new"),
		script("4.3.5/nothing_to_compare_updates", fresh+` || `+fresh+` | X: new`, "-> run", later,
			forward+"-> run",
			"-> any | X: new"),
	}
}

// staleShows test RFC 5861.
func staleShows() []show {
	const while = `Cache-Control: max-age=60, stale-while-revalidate=60`
	const onError = `Cache-Control: max-age=60, stale-if-error=60 | ETag: "a"`
	shows := []show{
		script("5861-3/served_while_it_is_validated", while+` | ETag: "a"`, "-> run", "wait 90s",
			"-> stale | body / 1 | Age: 90",
			"-> hit | body / 1 | Age: 0"),
		script("5861-3/served_while_it_is_made_anew", while, "-> run", "wait 90s",
			"-> stale | body / 1", "-> hit | body / 2"),
		script("5861-3/not_after_the_window", while+` | ETag: "a"`, "-> run", "wait 121s",
			"-> check"),
		script("5861-3/one_revalidation_at_a_time", while+` || after 20s | `+while, "-> run",
			"wait 90s",
			"-> stale | body / 1",
			"-> hit | body / 1", "wait 21s", "-> hit | body / 2"),
		inBubble(coded("5861-3/nobody_waits", while+` || after 20s | `+while, func(s *site) {
			s.step("-> run")
			s.step("wait 90s")
			began := time.Now()
			s.ask(http.MethodGet, "/", nil)
			if took := time.Since(began); took != 0 {
				s.Errorf("the answer took %v", took)
			}
			s.step("wait 21s")
		})),
		script("5861-3/not_with_must_revalidate", while+`, must-revalidate | ETag: "a"`, "-> run",
			"wait 90s", "-> check"),
		script("5861-4/not_after_the_window", onError+` || 503`, "-> run", "wait 121s",
			"-> run 503"),
		script("5861-4/not_for_a_client_error", onError+` || 404`, "-> run", "wait 90s",
			"-> run 404"),
		script("5861-4/not_for_an_answer", onError+` || `+fresh, "-> run", "wait 90s",
			"-> run | body / 2"),
		script("5861-4/not_with_must_revalidate",
			onError+` | Cache-Control: must-revalidate || 503`, "-> run", "wait 90s",
			"-> run 503"),
		script("5861-4/the_request_can_say_it", `Cache-Control: max-age=60 | ETag: "a" || 503`,
			"-> run", "wait 90s",
			"| Cache-Control: stale-if-error=60 -> kept | body / 1"),
	}
	for _, status := range []int{500, 502, 503, 504} {
		shows = append(shows,
			script(fmt.Sprint("5861-4/served_on_error/", status),
				fmt.Sprint(onError, " || ", status),
				"-> run",
				"wait 90s", "-> kept | body / 1 | Age: 90"))
	}
	sometimes := middleware.Options{StaleWhileRevalidate: time.Hour, StaleIfError: time.Hour}
	return append(shows, with(sometimes,
		script("5861-3/options_say_it", `Cache-Control: max-age=60`, "-> run", "wait 90s",
			"-> stale | body / 1"),
		script("5861-3/the_response_overrides_options",
			`Cache-Control: max-age=60, stale-while-revalidate=0`, "-> run",
			"wait 90s", "-> run"),
		script("5861-4/options_say_it",
			`Cache-Control: max-age=60, stale-while-revalidate=0 || 503`, "-> run", "wait 90s",
			"-> kept | body / 1"),
		script("5861-4/the_response_overrides_options",
			`Cache-Control: max-age=60, stale-while-revalidate=0, stale-if-error=0 || 503`,
			"-> run", "wait 90s", "-> run 503"),
	)...)
}
