package middleware_test

import (
	"fmt"

	"github.com/cacheguard/cacheguard/middleware"
)

// requestShows test the wishes of requests: RFC 9111, sections 5.2.1 and 5.4.
func requestShows() []show {
	const minute = `Cache-Control: max-age=60 | ETag: "a"`
	aged := fresh + ` | Age: 300`
	shows := []show{
		twice("5.2.1.1/max_age_0", fresh, "run", "", "Cache-Control: max-age=0"),
		twice("5.2.1.1/older_than_max_age", aged, "run", "", "Cache-Control: max-age=200"),
		twice("5.2.1.1/younger_than_max_age", aged, "hit", "", "Cache-Control: max-age=400"),
		twice("5.2.1.1/older_is_validated", aged+` | ETag: "a"`, "check", "",
			"Cache-Control: max-age=200"),
		twice("5.2.1.1/stale_is_not_wanted", stale, "check", "", "Cache-Control: max-age=1000"),
		script("5.2.1.1/stale_is_wanted", minute, "-> run", "wait 90s",
			"| Cache-Control: max-age=1000, max-stale=100 -> hit"),
		script("5.2.1.1/stale_is_wanted_but_younger", minute, "-> run", "wait 90s",
			"| Cache-Control: max-age=80, max-stale=100 -> check"),

		script("5.2.1.2/within_max_stale", minute, "-> run", "wait 90s",
			"| Cache-Control: max-stale=40 -> hit | Age: 90"),
		script("5.2.1.2/beyond_max_stale", minute, "-> run", "wait 90s",
			"| Cache-Control: max-stale=20 -> check"),
		script("5.2.1.2/any_staleness", minute, "-> run", "wait 90s",
			"| Cache-Control: max-stale -> hit | Age: 90"),
		script("5.2.1.2/not_said", minute, "-> run", "wait 90s", "-> check"),
		twice("5.2.1.2/fresh_is_fine", fresh, "hit", "", "Cache-Control: max-stale=1"),

		twice("5.2.1.3/fresh_for_too_short", aged, "run", "", "Cache-Control: min-fresh=400"),
		twice("5.2.1.3/fresh_for_long_enough", aged, "hit", "", "Cache-Control: min-fresh=200"),
		twice("5.2.1.3/longer_than_it_ever_was", fresh, "run", "", "Cache-Control: min-fresh=1000"),

		twice("5.2.1.4/no_cache", fresh, "run", "", "Cache-Control: no-cache"),
		twice("5.2.1.4/validates_by_tag", fresh+` | ETag: "a"`, "check", "",
			"Cache-Control: no-cache"),
		twice("5.2.1.4/validates_by_date", fresh+` | Last-Modified: `+longAgo, "check", "",
			"Cache-Control: no-cache"),
		twice("5.2.1.4/knows_no_case", fresh, "run", "", "cache-control: No-Cache"),
		twice("5.2.1.4/beside_others", fresh, "run", "",
			"Cache-Control: max-stale=10, x=\"no-store\", no-cache"),

		script("5.2.1.5/answer_is_not_stored", fresh, "| Cache-Control: no-store -> run", "-> run",
			"-> hit"),
		script("5.2.1.5/answer_does_not_replace_what_is_stored", fresh, "-> run",
			"| Cache-Control: no-store, no-cache -> run",
			"-> hit | body / 1"),

		script("5.2.1.7/nothing_stored", fresh, "| Cache-Control: only-if-cached -> hit 504",
			"-> run"),
		script("5.2.1.7/something_stored", fresh, "-> run",
			"| Cache-Control: only-if-cached -> hit"),
		script("5.2.1.7/other_variant_stored", varied, "| Foo: 1 -> run",
			"| Foo: 2 | Cache-Control: only-if-cached -> hit 504"),
		script("5.2.1.7/stale_stored", stale, "-> run",
			"| Cache-Control: only-if-cached -> hit 504"),
		script("5.2.1.7/stale_stored_and_wanted", minute, "-> run", "wait 90s",
			"| Cache-Control: only-if-cached, max-stale -> hit"),
		script("5.2.1.7/too_old", aged, "-> run",
			"| Cache-Control: only-if-cached, max-age=200 -> hit 504"),
		script("5.2.1.7/not_shared", `Cache-Control: private`, "-> run",
			"| Cache-Control: only-if-cached -> hit 504"),
		script("5.2.1.7/head", fresh, "HEAD | Cache-Control: only-if-cached -> hit 504"),

		twice("5.2.1/unknown_means_nothing", fresh, "hit", "",
			"Cache-Control: x, no-cachet, y=no-cache, stale-while-revalidate=1"),
		twice("5.2.1/response_directives_mean_nothing", fresh, "hit", "",
			"Cache-Control: private, must-revalidate, s-maxage=0"),

		twice("5.4/pragma_counts_alone", fresh, "run", "", "Pragma: no-cache"),
		twice("5.4/pragma_is_ignored_beside_cache_control", fresh, "hit", "",
			"Pragma: no-cache | Cache-Control: max-age=600"),
		twice("5.4/unknown_pragma_means_nothing", fresh, "hit", "", "Pragma: x"),
		twice("5.4/response_pragma_means_nothing", fresh+` | Pragma: no-cache`, "hit"),
		twice("5.4/unknown_response_pragma_means_nothing", fresh+` | Pragma: x`, "hit"),
	}
	for i, said := range []string{
		"max-age=0", "no-cache", "min-fresh=10000", "max-age=0, no-cache",
	} {
		shows = append(shows, with(middleware.Options{IgnoreRequestDirectives: true},
			twice(fmt.Sprint("5.2.1/can_be_ignored/", i), fresh, "hit", "",
				"Cache-Control: "+said))...)
	}
	return append(shows, with(middleware.Options{IgnoreRequestDirectives: true},
		twice("5.2.1/pragma_can_be_ignored", fresh, "hit", "", "Pragma: no-cache"),
		script("5.2.1/max_stale_can_be_ignored", minute, "-> run", "wait 90s",
			"| Cache-Control: max-stale -> check"),
		script("5.2.1/no_store_can_not_be_ignored", fresh, "| Cache-Control: no-store -> run",
			"-> run", "-> hit"),
		script("5.2.1/only_if_cached_can_not_be_ignored", fresh,
			"| Cache-Control: only-if-cached -> hit 504"),
	)...)
}

// directiveShows test the directives of responses: RFC 9111, sections 5.2, 5.2.2 and 5.2.3.
func directiveShows() []show {
	const off = ` | Age: 100 | ETag: "a"`
	qualified := `Cache-Control: max-age=600, %s | A: 1 | B: 2 | C: 3`
	shows := []show{
		script("5.2/request_directives_reach_the_handler", fresh,
			`| Cache-Control: max-age=5, x="y z" -> run | saw Cache-Control: max-age=5, x="y z"`),
		twice("5.2/response_directives_reach_the_client",
			`Cache-Control: max-age=600, x="y, z" | Cache-Control: no-transform`,
			`hit | Cache-Control: max-age=600, x="y, z", no-transform`),
		twice("5.2/names_know_no_case", `cache-control: MaX-AgE=600`, "hit"),
		twice("5.2/names_know_no_case_for_prohibitions", `Cache-Control: max-age=600, nO-StOrE`,
			"run"),
		twice("5.2/argument_can_be_quoted", `Cache-Control: max-age="600"`, "hit"),
		twice("5.2/quoted_argument_can_be_0", `Cache-Control: max-age="0"`, "run"),
		twice("5.2/zeros_before_the_number", `Cache-Control: max-age=00600`, "hit"),
		twice("5.2/empty_members", `Cache-Control: , ,max-age=600,,`, "hit"),
		twice("5.2/no_blank_after_the_comma", `Cache-Control: x,max-age=600`, "hit"),
		twice("5.2/quoted_text_is_no_directive", `Cache-Control: x="max-age=600", max-age=0`,
			"run"),
		twice("5.2/quoted_text_after_is_no_directive", `Cache-Control: max-age=0, x="max-age=600"`,
			"run"),
		twice("5.2/quoted_text_alone_is_no_directive", `Cache-Control: x="a, max-age=600, b"`,
			"run"),
		twice("5.2/escaped_quote_ends_nothing", `Cache-Control: x="\", max-age=600, \""`, "run"),
		twice("5.2/quoted_text_and_quoted_argument", `Cache-Control: x="max-age=600", max-age="0"`,
			"run"),
		twice("5.2/quoted_prohibition_is_none", `Cache-Control: max-age=600, x="no-store, private"`,
			"hit"),

		twice("5.2.2.1/max_age", `Cache-Control: max-age=60 | Age: 61`, "run"),

		twice("5.2.2.2/fresh_is_used", `Cache-Control: max-age=600, must-revalidate | ETag: "a"`,
			"hit"),
		twice("5.2.2.2/stale_is_validated", `Cache-Control: max-age=60, must-revalidate`+off,
			"check"),
		script("5.2.2.2/stale_is_not_used_when_validation_fails",
			`Cache-Control: max-age=60, must-revalidate, stale-if-error=600 | ETag: "a" || 500`,
			"-> run", "wait 90s", "-> run 500"),
		script("5.2.2.2/stale_is_not_used_for_max_stale",
			`Cache-Control: max-age=60, must-revalidate | ETag: "a"`,
			"-> run", "wait 90s",
			"| Cache-Control: max-stale -> check"),
		script("5.2.2.2/only_if_cached_gets_504",
			`Cache-Control: max-age=60, must-revalidate | ETag: "a"`, "-> run",
			"wait 90s",
			"| Cache-Control: only-if-cached, max-stale -> hit 504"),

		twice("5.2.2.3/unknown_status", `299 | Cache-Control: max-age=600, must-understand`,
			"run any"),
		twice("5.2.2.3/known_status", `Cache-Control: max-age=600, must-understand`, "hit"),
		twice("5.2.2.3/no_store_is_ignored_for_known_status",
			`Cache-Control: max-age=600, must-understand, no-store`, "hit"),
		twice("5.2.2.3/no_store_holds_for_unknown_status",
			`599 | Cache-Control: max-age=600, must-understand, no-store`,
			"run any"),

		twice("5.2.2.4/fresh_is_not_used", fresh+`, no-cache`, "run"),
		twice("5.2.2.4/expires_does_not_help", `Cache-Control: no-cache | Expires: {+1h}`, "run"),
		twice("5.2.2.4/known_in_any_case", `Cache-Control: max-age=600, No-CaChE`, "run"),
		twice("5.2.2.4/used_when_validated", `Cache-Control: no-cache | ETag: "a"`, "check"),
		twice("5.2.2.4/used_when_validated_though_fresh", fresh+`, no-cache | ETag: "a"`, "check"),
		script("5.2.2.4/validated_each_time", fresh+`, no-cache | ETag: "a"`, "-> run", "-> check",
			"-> check | body / 1"),
		script("5.2.2.4/not_used_when_validation_fails",
			`Cache-Control: no-cache, stale-if-error=600 | ETag: "a" || 503`,
			"-> run",
			"-> run 503"),
		twice("5.2.2.4/not_used_for_max_stale", `Cache-Control: no-cache | ETag: "a"`, "check", "",
			"Cache-Control: max-stale"),
		twice("5.2.2.4/argument_that_names_no_field", fresh+`, no-cache=""`, "run"),

		twice("5.2.2.5/not_stored", `Cache-Control: no-store | ETag: "a"`, "run"),
		twice("5.2.2.5/not_stored_though_fresh",
			`Cache-Control: max-age=600, no-store | Expires: {+1h}`, "run"),
		twice("5.2.2.5/not_stored_though_public", `Cache-Control: public, s-maxage=600, no-store`,
			"run"),
		twice("5.2.2.5/argument_does_not_matter", `Cache-Control: max-age=600, no-store="x"`,
			"run"),
		with(middleware.Options{DefaultTTL: mustDuration("1h"), Heuristic: 0.1},
			twice("5.2.2.5/options_do_not_matter",
				`Cache-Control: no-store | Last-Modified: `+longAgo, "run"))[0],

		twice("5.2.2.6/content_is_not_transformed",
			fresh+`, no-transform | Content-Encoding: x-none | body  a  B `,
			"hit | body  a  B  | Content-Encoding: x-none", "Accept-Encoding: gzip",
			"Accept-Encoding: gzip"),

		twice("5.2.2.7/not_shared", fresh+`, private`, "run"),
		twice("5.2.2.7/not_shared_though_s_maxage", `Cache-Control: private, s-maxage=600`, "run"),
		twice("5.2.2.7/known_in_any_case", fresh+`, PRIVATE`, "run"),
		with(middleware.Options{DefaultTTL: mustDuration("1h")},
			twice("5.2.2.7/options_do_not_matter",
				`Cache-Control: private`,
				"run"))[0],

		twice("5.2.2.8/fresh_is_used", fresh+`, proxy-revalidate`, "hit"),
		twice("5.2.2.8/stale_is_validated", `Cache-Control: max-age=60, proxy-revalidate`+off,
			"check"),
		script("5.2.2.8/stale_is_not_used_when_validation_fails",
			`Cache-Control: max-age=60, proxy-revalidate, stale-if-error=600 | ETag: "a" || 500`,
			"-> run", "wait 90s", "-> run 500"),
		script("5.2.2.8/stale_is_not_used_for_max_stale",
			`Cache-Control: max-age=60, proxy-revalidate | ETag: "a"`,
			"-> run", "wait 90s",
			"| Cache-Control: max-stale -> check"),

		twice("5.2.2.9/public_with_authorization", fresh+`, public`, "hit", "Authorization: a",
			"Authorization: b"),

		twice("5.2.2.10/overrides_max_age", `Cache-Control: max-age=0, s-maxage=600`, "hit"),
		twice("5.2.2.10/overrides_expires", `Cache-Control: s-maxage=0 | Expires: {+1h}`, "run"),
		twice("5.2.2.10/stale_is_validated", `Cache-Control: max-age=600, s-maxage=60`+off,
			"check"),
		script("5.2.2.10/stale_is_not_used_when_validation_fails",
			`Cache-Control: s-maxage=60 | ETag: "a" || 500`,
			"-> run", "wait 90s", "-> run 500"),
		script("5.2.2.10/stale_is_not_used_for_max_stale", `Cache-Control: s-maxage=60 | ETag: "a"`,
			"-> run", "wait 90s",
			"| Cache-Control: max-stale -> check"),

		twice("5.2.3/unknown_is_ignored", `Cache-Control: x, max-age=600, y=1, z="2"`, "hit"),
		twice("5.2.3/immutable_is_still_validated", `Cache-Control: max-age=60, immutable`+off,
			"check"),
		twice("5.2.3/unknown_does_not_widen",
			`Cache-Control: private, community="UCI", max-age=600`, "run"),
	}
	for name, said := range map[string]string{
		"one": `no-cache="a"`, "several": `no-cache="a, B"`, "token": `no-cache=a`,
		"blanks": `no-cache=" a ,b "`,
	} {
		expect := "hit | !A | C: 3"
		if name == "several" || name == "blanks" {
			expect += " | !B"
		}
		shows = append(shows,
			twice("5.2.2.4/named_fields_are_left_out/"+name, fmt.Sprintf(qualified, said), expect),
			twice("5.2.2.7/named_fields_are_left_out/"+name,
				fmt.Sprintf(qualified, "private"+said[len("no-cache"):]), expect))
	}
	return append(shows,
		script("5.2.2.4/named_cookie_is_left_out",
			fresh+`, no-cache="set-cookie" | Set-Cookie: user=1`,
			"-> run | Set-Cookie: user=1", "-> hit | !Set-Cookie"),
		script("5.2.2.7/named_cookie_is_left_out",
			fresh+`, private="set-cookie" | Set-Cookie: user=1`,
			"-> run | Set-Cookie: user=1", "-> hit | !Set-Cookie"),
		twice("5.2.2.7/unqualified_beside_qualified", fresh+`, private="a", private | A: 1`, "run"),
	)
}
