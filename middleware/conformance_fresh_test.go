package middleware_test

import (
	"fmt"

	"github.com/cacheguard/cacheguard/middleware"
)

// freshnessShows test how long a response is fresh: RFC 9111, sections 1.2.2, 4.2, 4.2.1 and 5.3.
func freshnessShows() []show {
	var shows []show
	for _, seconds := range []string{
		"2147483647", "2147483648", "2147483649", "99999999999", "99999999999999999999999",
	} {
		shows = append(shows,
			twice("1.2.2/large_max_age/"+seconds, `Cache-Control: max-age=`+seconds, "hit"),
			twice("1.2.2/large_s_maxage/"+seconds, `Cache-Control: s-maxage=`+seconds, "hit"),
			twice("1.2.2/large_age/"+seconds, fresh+` | Age: `+seconds, "run"))
	}
	for i, field := range []string{
		`max-age=-600`, `max-age='600'`, `max-age=600.0`, `max-age=600.5`, `max-age=a600`,
		`max-age=600a`, `max-age=`,
		`max-age`, `max-age=6e2`, `max-age=0x600`, `max-age="600`, `max-age=٦٠٠`, `max-age=+600`,
		`max-age="-600"`,
		`s-maxage=x, max-age=600`,
	} {
		shows = append(shows,
			twice(fmt.Sprint("4.2.1/unreadable_means_stale/", i), `Cache-Control: `+field, "run"))
	}
	return append(shows,
		script("4.2/fresh_until_its_lifetime_is_over", `Cache-Control: max-age=60`, "-> run",
			"wait 58s", "-> hit", "wait 3s",
			"-> run", "-> hit"),
		script("4.2/expires_until_it_is_over", `Expires: {+60s}`, "-> run", "wait 58s", "-> hit",
			"wait 3s", "-> run"),
		twice("4.2/age_at_the_lifetime_is_stale", fresh+` | Age: 600`, "run"),
		twice("4.2/age_below_the_lifetime_is_fresh", fresh+` | Age: 500`, "hit"),

		twice("4.2.1/s_maxage_before_max_age", `Cache-Control: max-age=0, s-maxage=600`, "hit"),
		twice("4.2.1/s_maxage_before_longer_max_age", `Cache-Control: max-age=600, s-maxage=0`,
			"run"),
		twice("4.2.1/order_does_not_matter", `Cache-Control: s-maxage=0, max-age=600`, "run"),
		twice("4.2.1/lines_are_one_field", `Cache-Control: max-age=600 | Cache-Control: s-maxage=0`,
			"run"),
		twice("4.2.1/s_maxage_before_expires", `Cache-Control: s-maxage=600 | Expires: {-1h}`,
			"hit"),
		twice("4.2.1/max_age_before_expires", fresh+` | Expires: {-1h}`, "hit"),
		twice("4.2.1/max_age_0", `Cache-Control: max-age=0`, "run"),
		twice("4.2.1/max_age_0_before_expires",
			`Cache-Control: max-age=0 | Expires: {+1h} | Date: {now}`, "run"),
		twice("4.2.1/expires_after_date", `Expires: {+1h} | Date: {now}`, "hit"),
		twice("4.2.1/expires_before_now", `Expires: {-1h} | Date: {now}`, "run"),
		twice("4.2.1/expires_at_date", `Expires: {now} | Date: {now}`, "run"),
		twice("4.2.1/expires_before_a_date_ahead", `Expires: {+300s} | Date: {+400s}`, "run"),
		twice("4.2.1/expires_and_no_date", `Expires: {+1h}`, "hit"),
		twice("4.2.1/expires_and_a_date_that_is_none", `Expires: {+1h} | Date: yesterday`, "hit"),
		twice("4.2.1/clock_of_the_handler_is_slow", `Date: {-2h} | Expires: {-1h} | Age: 7200`,
			"run"),
		twice("4.2.1/age_above_expires_minus_slow_date", `Date: {-10s} | Expires: {+10s} | Age: 25`,
			"run"),
		twice("4.2.1/age_above_expires_minus_fast_date", `Date: {+10s} | Expires: {+20s} | Age: 15`,
			"run"),
		twice("4.2.1/first_max_age_is_0", `Cache-Control: max-age=0, max-age=600`, "run"),
		twice("4.2.1/first_line_of_max_age_is_0",
			`Cache-Control: max-age=0 | Cache-Control: max-age=600`, "run"),
		twice("4.2.1/first_expires_is_over", `Expires: {-1h} | Expires: {+1h}`, "run"),
		twice("4.2.1/conflict_with_no_cache", fresh+`, no-cache`, "run"),
		twice("4.2.1/conflict_with_no_store", `Cache-Control: no-store, max-age=600`, "run"),
		twice("4.2.1/conflict_with_public", `Cache-Control: private, public, max-age=600`, "run"),
		twice("4.2.1/conflict_over_lines",
			`Cache-Control: public, max-age=600 | Cache-Control: no-store`, "run"),

		twice("5.3/zero_is_over", `Expires: 0`, "run"),
		twice("5.3/word_is_over", `Expires: tomorrow`, "run"),
		twice("5.3/empty_is_over", `Expires: `, "run"),
		twice("5.3/number_is_over", `Expires: 4102444800`, "run"),
		twice("5.3/ignored_beside_max_age", fresh+` | Expires: 0 | Date: {now}`, "hit"),
		twice("5.3/ignored_beside_s_maxage", `Cache-Control: s-maxage=600 | Expires: {-1h}`, "hit"),
		twice("5.3/far_future", `Expires: Sun, 21 Nov 2286 04:46:39 GMT`, "hit"),
		twice("5.3/after_2038", `Expires: Wed, 20 Jan 2038 03:14:08 GMT`, "hit"),
	)
}

// dateShows test the forms of dates: RFC 9111, section 4.2, and RFC 9110, section 5.6.7.
func dateShows() []show {
	return []show{
		twice("4.2/date_in_capitals", `Expires: THU, 18 AUG 2050 02:01:18 GMT`, "hit"),
		twice("4.2/date_in_small_letters", `Expires: thu, 18 aug 2050 02:01:18 gmt`, "hit"),
		// See init.
		twice("4.2/zone_of_the_server_does_not_matter", `Expires: {+1h:asctime}`, "hit"),
		twice("4.2/zone_of_the_server_extends_nothing", `Expires: {-1h:asctime}`, "run"),
		twice("4.2/other_zone_is_invalid/utc", `Expires: Thu, 18 Aug 2050 02:01:18 UTC`, "run"),
		twice("4.2/other_zone_is_invalid/aest", `Expires: Thu, 18 Aug 2050 02:01:18 AEST`, "run"),
		twice("4.2/other_zone_is_invalid/offset", `Expires: Thu, 18 Aug 2050 02:01:18 +0000`,
			"run"),
		twice("4.2/other_zone_is_invalid/none", `Expires: Thu, 18 Aug 2050 02:01:18`, "run"),

		twice("9110-5.6.7/imf_fixdate", `Expires: {+1h}`, "hit"),
		twice("9110-5.6.7/rfc_850", `Expires: {+1h:850}`, "hit"),
		twice("9110-5.6.7/asctime", `Expires: {+1h:asctime}`, "hit"),
		twice("9110-5.6.7/asctime_of_one_digit", `Expires: Mon Aug  8 02:01:18 2050`, "hit"),
		twice("9110-5.6.7/two_digits_within_50_years", `Expires: {+200000h:850}`, "hit"),
		twice("9110-5.6.7/two_digits_beyond_50_years", `Expires: Sunday, 06-Nov-94 08:49:37 GMT`,
			"run"),
		twice("9110-5.6.7/other_forms_are_invalid/no_comma",
			`Expires: Thu 18 Aug 2050 02:01:18 GMT`, "run"),
		twice("9110-5.6.7/other_forms_are_invalid/two_digits",
			`Expires: Thu, 18 Aug 50 02:01:18 GMT`, "run"),
		twice("9110-5.6.7/other_forms_are_invalid/blanks",
			`Expires: Thu, 18  Aug  2050 02:01:18 GMT`, "run"),
		twice("9110-5.6.7/other_forms_are_invalid/dashes", `Expires: Thu, 18-Aug-2050 02:01:18 GMT`,
			"run"),
		twice("9110-5.6.7/other_forms_are_invalid/points", `Expires: Thu, 18 Aug 2050 02.01.18 GMT`,
			"run"),
		twice("9110-5.6.7/other_forms_are_invalid/one_digit_hour",
			`Expires: Thu, 18 Aug 2050 2:01:18 GMT`, "run"),
		twice("9110-5.6.7/other_forms_are_invalid/iso", `Expires: 2050-08-18T02:01:18Z`, "run"),
	}
}

// ageShows test how old a response is: RFC 9111, sections 4.2.3 and 5.1.
func ageShows() []show {
	shows := []show{
		twice("4.2.3/age_counts", `Cache-Control: max-age=100 | Age: 200 | Date: {now}`, "run"),
		twice("4.2.3/age_is_passed_on", fresh+` | Age: 200`, "hit | Age>=200 | Age<=210"),
		twice("4.2.3/date_counts", `Cache-Control: max-age=100 | Date: {-200s}`, "run"),
		twice("4.2.3/date_is_passed_on_as_age", fresh+` | Date: {-200s}`,
			"hit | Age>=200 | Age<=210"),
		twice("4.2.3/larger_of_age_and_date", fresh+` | Date: {-100s} | Age: 200`,
			"hit | Age>=200 | Age<=210"),
		twice("4.2.3/date_ahead_is_no_age", fresh+` | Date: {+1h}`, "hit | Age<=5"),
		script("4.2.3/time_in_the_cache_counts", fresh+` | Age: 100`, "-> run", "wait 30s",
			"-> hit | Age: 130", "wait 70s",
			"-> hit | Age: 200"),
		script("4.2.3/time_of_the_run_counts", `after 20s | `+fresh+` | Age: 100`, "-> run",
			"-> hit | Age: 120", "wait 0s"),
		script("4.2.3/made_when_it_comes", `after 20s | Cache-Control: max-age=15`, "-> run",
			"-> hit | Age: 0", "wait 10s",
			"-> hit | Age: 10"),
		script("4.2.3/validation_begins_anew", `Cache-Control: max-age=60 | ETag: "a"`, "-> run",
			"wait 61s",
			"-> check", "wait 10s", "-> hit | Age: 10 | body / 1"),

		twice("5.1/old_first_member_counts", fresh+` | Age: 7200, 0`, "run"),
		twice("5.1/old_first_line_counts", fresh+` | Age: 7200 | Age: 0`, "run"),
	}
	for i, age := range []string{
		`abc`, `-7200`, `7200.0`, `7200;a=b`, `"10"`, `1 2`, `+1`, ``, `x, 7200`,
	} {
		shows = append(shows,
			twice(fmt.Sprint("5.1/no_number_is_ignored/", i), fresh+` | Age: `+age, "hit"))
	}
	for i, age := range []string{`0, 7200`, `0 | Age: 7200`, `, 0, 7200`, `590, x`} {
		shows = append(shows,
			twice(fmt.Sprint("5.1/new_first_member_counts/", i), fresh+` | Age: `+age, "hit"))
	}
	return shows
}

// heuristicShows test the freshness of responses that don't say how long they are fresh: RFC 9111,
// section 4.2.2.
func heuristicShows() []show {
	shows := []show{
		twice("4.2.2/none_without_last_modified", `Date: {now}`, "run"),
		twice("4.2.2/share_of_the_time_since", `Last-Modified: {-950s} | Date: {now}`,
			"hit | Cache-Status*=ttl=9"),
		twice("4.2.2/share_less_than_the_age", `Last-Modified: {-1000s} | Date: {now} | Age: 101`,
			"run/check"),
		twice("4.2.2/for_a_day_at_most", `Last-Modified: {-87600h} | Date: {now}`,
			"hit | Cache-Status*=ttl=86"),
		twice("4.2.2/last_modified_ahead", `Last-Modified: {+10h} | Date: {now}`, "run/check"),
		twice("4.2.2/not_with_max_age", `Last-Modified: {-240h} | Cache-Control: max-age=0`,
			"run/check"),
		twice("4.2.2/not_with_s_maxage", `Last-Modified: {-240h} | Cache-Control: s-maxage=0`,
			"run/check"),
		twice("4.2.2/not_with_expires", `Last-Modified: {-240h} | Expires: {-1h} | Date: {now}`,
			"run/check"),
		twice("4.2.2/not_with_unreadable_expires", `Last-Modified: {-240h} | Expires: 0`,
			"run/check"),
		twice("4.2.2/not_with_unreadable_max_age",
			`Last-Modified: {-240h} | Cache-Control: max-age=x`, "run/check"),
		script("4.2.2/query", `Last-Modified: {-240h}`, "/?a=1 -> run", "/?a=1 -> hit"),
		twice("4.2.2/public_makes_no_error_fresh",
			`599 | Last-Modified: {-240h} | Cache-Control: public`, "run 599"),
		twice("4.2.2/attachment",
			`Last-Modified: {-240h} | Content-Disposition: attachment; filename=a.txt`, "hit"),
	}
	for _, status := range []int{200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501} {
		shows = append(shows, twice(fmt.Sprint("4.2.2/status_has_heuristics/", status),
			fmt.Sprint(status, ` | Last-Modified: {-24h} | Date: {now}`),
			fmt.Sprint("hit ", status)))
	}
	for _, status := range []int{201, 202, 302, 303, 307, 400, 403, 500, 502, 503, 504, 599} {
		shows = append(shows, twice(fmt.Sprint("4.2.2/status_has_none/", status),
			fmt.Sprint(status, ` | Last-Modified: {-24h} | Date: {now}`),
			fmt.Sprint("run ", status)))
	}
	return append(with(middleware.Options{Heuristic: 0.1}, shows...),
		twice("4.2.2/only_if_asked_for", `Last-Modified: {-24h} | Date: {now}`, "run/check"))
}
