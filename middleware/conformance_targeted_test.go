package middleware_test

import "github.com/cacheguard/cacheguard/middleware"

// targetedShows test fields for this cache alone: RFC 9213.
func targetedShows() []show {
	shows := []show{
		twice("9213-2.1/parameters_are_ignored", `CDN-Cache-Control: max-age=600;a=b`, "hit"),
		twice("9213-2.1/decimal_is_no_age", `CDN-Cache-Control: max-age=600.5 | Cache-Control: max-age=600`, "run"),
		twice("9213-2.1/string_is_no_age", `CDN-Cache-Control: max-age="600" | Cache-Control: max-age=600`, "run"),
		twice("9213-2.1/token_is_no_age", `CDN-Cache-Control: max-age=a600 | Cache-Control: max-age=600`, "run"),
		twice("9213-2.1/negative_age", `CDN-Cache-Control: max-age=-600 | Cache-Control: max-age=600`, "run"),
		twice("9213-2.1/empty_is_ignored", `CDN-Cache-Control:  | Cache-Control: max-age=600`, "hit"),
		twice("9213-2.1/empty_is_ignored_to_prohibit", `CDN-Cache-Control:  | Cache-Control: no-store`, "run"),
		twice("9213-2.1/malformed_is_ignored", `CDN-Cache-Control: max-age=600, =1 | Cache-Control: no-store`, "run"),
		twice("9213-2.1/malformed_is_ignored_to_allow", `CDN-Cache-Control: no-store, =1 | Cache-Control: max-age=600`, "hit"),
		twice("9213-2.1/capitals_are_malformed", `CDN-Cache-Control: Max-Age=600 | Cache-Control: no-store`, "run"),
		twice("9213-2.1/comma_at_the_end_is_malformed", `CDN-Cache-Control: max-age=600, | Cache-Control: no-store`, "run"),
		twice("9213-2.1/quoted_text_is_no_directive", `CDN-Cache-Control: x="a, max-age=600", max-age=0`, "run"),
		twice("9213-2.1/last_member_of_a_name_counts", `CDN-Cache-Control: max-age=600, max-age=0`, "run"),
		twice("9213-2.1/lines_are_one_dictionary", `CDN-Cache-Control: max-age=600 | CDN-Cache-Control: no-store`, "run"),

		twice("9213-2.2/takes_the_place_of_cache_control", `CDN-Cache-Control: max-age=600 | Cache-Control: max-age=0`, "hit"),
		twice("9213-2.2/takes_the_place_of_s_maxage", `CDN-Cache-Control: max-age=0 | Cache-Control: s-maxage=600`, "run"),
		twice("9213-2.2/takes_the_place_of_no_store", `CDN-Cache-Control: max-age=600 | Cache-Control: no-store`, "hit"),
		twice("9213-2.2/takes_the_place_of_private", `CDN-Cache-Control: max-age=600 | Cache-Control: private`, "hit"),
		twice("9213-2.2/takes_the_place_of_expires", `CDN-Cache-Control: max-age=600 | Expires: {-1h}`, "hit"),
		twice("9213-2.2/takes_the_place_of_expires_to_prohibit", `CDN-Cache-Control: x | Expires: {+1h}`, "run"),
		twice("9213-2.2/unknown_directive_alone", `CDN-Cache-Control: none | Cache-Control: max-age=600`, "run"),
		twice("9213-2.2/max_age", `CDN-Cache-Control: max-age=60 | Age: 61`, "run"),
		twice("9213-2.2/no_store", `CDN-Cache-Control: no-store, max-age=600 | Cache-Control: max-age=600`, "run"),
		twice("9213-2.2/no_cache", `CDN-Cache-Control: no-cache, max-age=600 | Cache-Control: max-age=600 | ETag: "a"`,
			"check"),
		twice("9213-2.2/private", `CDN-Cache-Control: private, max-age=600 | Cache-Control: max-age=600`, "run"),
		twice("9213-2.2/private_fields", `CDN-Cache-Control: private="a", max-age=600 | A: 1 | B: 2`, "hit | !A | B: 2"),
		twice("9213-2.2/s_maxage", `CDN-Cache-Control: s-maxage=600, max-age=0`, "hit"),
		twice("9213-2.2/false_is_not_said", `CDN-Cache-Control: max-age=600, no-store=?0`, "hit"),
		script("9213-2.2/must_revalidate", `CDN-Cache-Control: max-age=60, must-revalidate, stale-if-error=600 | `+
			`ETag: "a" || 500`, "-> run", "wait 90s", "-> run 500"),
		script("9213-2.2/stale_while_revalidate", `CDN-Cache-Control: max-age=60, stale-while-revalidate=60`, "-> run",
			"wait 90s",
			"-> stale | body / 1"),
		script("9213-2.2/stale_if_error", `CDN-Cache-Control: max-age=60, stale-if-error=60 || 503`, "-> run", "wait 90s",
			"-> kept | body / 1"),
		twice("9213-2.2/public_with_authorization", `CDN-Cache-Control: max-age=600, public`, "hit", "Authorization: a"),
		twice("9213-2.2/age_alone_with_authorization", `CDN-Cache-Control: max-age=600 | Cache-Control: public`, "run",
			"Authorization: a"),
		twice("9213-2.2/other_fields_change_nothing", `Other-Cache-Control: max-age=600 | Surrogate-Control: max-age=600`,
			"run"),
		twice("9213-2.2/other_fields_are_passed_through", fresh+` | Other-Cache-Control: no-store`,
			"hit | Other-Cache-Control: no-store"),
		twice("9213-3.1/field_is_passed_on", `CDN-Cache-Control: max-age=600`, "hit | CDN-Cache-Control: max-age=600"),
	}
	two := middleware.Options{TargetedFields: []string{"Own-Cache-Control", "CDN-Cache-Control"}}
	shows = append(shows, with(two,
		twice("9213-2.2/first_of_the_list_counts", `CDN-Cache-Control: max-age=0 | Own-Cache-Control: max-age=600`, "hit"),
		twice("9213-2.2/first_of_the_list_prohibits", `CDN-Cache-Control: max-age=600 | Own-Cache-Control: no-store`, "run"),
		twice("9213-2.2/second_if_the_first_is_absent", `CDN-Cache-Control: max-age=600 | Cache-Control: no-store`, "hit"),
		twice("9213-2.2/second_if_the_first_is_malformed", `CDN-Cache-Control: max-age=600 | Own-Cache-Control: =`, "hit"),
		twice("9213-2.2/second_if_the_first_is_empty", `CDN-Cache-Control: max-age=600 | Own-Cache-Control: `, "hit"),
	)...)
	return append(shows, with(middleware.Options{TargetedFields: []string{}},
		twice("9213-2.2/none_if_the_list_is_empty", `CDN-Cache-Control: max-age=600 | Cache-Control: max-age=0`, "run"))...)
}

// statusShows test the cache's own report of its actions: RFC 9211.
func statusShows() []show {
	const while = `Cache-Control: max-age=60, stale-while-revalidate=60 | ETag: "a"`
	shows := []show{
		script("9211-2/members_before_are_kept", fresh+` | Cache-Status: origin; hit`,
			"-> run | Cache-Status*=origin; hit, cacheguard; fwd=uri-miss", "wait 10s",
			"-> hit | Cache-Status: origin; hit, cacheguard; hit; ttl=590"),
		script("9211-2/members_do_not_pile_up", fresh, "-> run", "-> hit", "wait 10s",
			"-> hit | Cache-Status: cacheguard; hit; ttl=590"),
		script("9211-2/not_on_what_the_cache_makes_up", fresh, "| Cache-Control: only-if-cached -> hit 504 | !Cache-Status"),
		twice("9211-2/on_304", fresh+` | ETag: "a"`, "hit 304 | Cache-Status*=cacheguard; hit", "", `If-None-Match: "a"`),
		twice("9211-2/on_206", fresh, "hit 206 | Cache-Status*=cacheguard; hit", "", `Range: bytes=0-1`),
		twice("9211-2/on_head", fresh, "hit | Cache-Status*=cacheguard; hit"),
		script("9211-2.1/hit_is_no_fwd", fresh, "-> run", "wait 1s", "-> hit | Cache-Status: cacheguard; hit; ttl=599"),
		script("9211-2.1/stale_is_a_hit", while, "-> run", "wait 90s", "-> stale | Cache-Status: cacheguard; hit; ttl=-30"),
		script("9211-2.2/uri_miss", fresh, "-> run | Cache-Status*=cacheguard; fwd=uri-miss"),
		twice("9211-2.2/vary_miss", varied, "run | Cache-Status*=cacheguard; fwd=vary-miss", "Foo: 1", "Foo: 2"),
		twice("9211-2.2/stale", stale+` || `+fresh, "run | Cache-Status*=cacheguard; fwd=stale"),
		twice("9211-2.2/request", fresh, "run | Cache-Status*=cacheguard; fwd=request", "", "Cache-Control: no-cache"),
		twice("9211-2.2/request_wants_it_younger", fresh+` | Age: 30`, "run | Cache-Status*=cacheguard; fwd=request", "",
			"Cache-Control: max-age=10"),
		script("9211-2.2/method", fresh, "POST -> run | Cache-Status*=cacheguard; fwd=method"),
		script("9211-2.2/range_on_a_miss", fresh, "| Range: bytes=0-1 -> run | Cache-Status*=cacheguard; fwd="),
		twice("9211-2.3/not_modified", stale, "check | Cache-Status*=cacheguard; fwd=stale; fwd-status=304"),
		script("9211-2.4/ttl_left", fresh+` | Age: 100`, "-> run", "wait 50s",
			"-> hit | Cache-Status: cacheguard; hit; ttl=450"),
		script("9211-2.5/stored", fresh, "-> run | Cache-Status*=; stored"),
		script("9211-2.5/not_stored", `Cache-Control: no-store`,
			"-> run | Cache-Status*=cacheguard; fwd=uri-miss | Cache-Status!*=stored"),
		script("9211-2.5/not_stored_method", fresh,
			"POST -> run | Cache-Status*=cacheguard; fwd=method | Cache-Status!*=stored"),
		script("9211-2.7/key_is_hidden", fresh, "-> run | Cache-Status!*=key", "-> hit | Cache-Status!*=key"),
	}
	shows = append(shows, with(middleware.Options{ShowKey: true}, script("9211-2.7/key_is_a_string", fresh,
		"/a?b=c | Host: a.test -> run | Cache-Status*=key=\"http://a.test/a?b=c",
		"/a?b=c | Host: a.test -> hit | Cache-Status*=; key=\""))...)
	shows = append(shows, with(middleware.Options{CacheStatus: "edge"},
		twice("9211-2/own_name", fresh, "hit | Cache-Status*=edge; hit"))...)
	return append(shows, with(middleware.Options{HideStatus: true},
		script("9211-2/hidden", fresh+` | Cache-Status: origin; hit`, "-> run | Cache-Status: origin; hit",
			"-> hit | Cache-Status: origin; hit"))...)
}
