package middleware_test

import (
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/middleware"
)

// partShows test parts that handlers made, and responses that are joined from parts: RFC 9111,
// sections 3.3 and 3.4, and RFC 9110, sections 14.4 and 15.3.7.
func partShows() []show {
	part := func(fields, positions, body string) string {
		return `206 | ` + fields + ` | Content-Range: bytes ` + positions + ` | body ` + body
	}
	const tagged, weak = fresh + ` | ETag: "a"`, fresh + ` | ETag: W/"a"`
	head, tail := part(tagged, "0-4/10", "01234"), part(tagged, "5-9/10", "56789")
	then := func(replies ...string) string { return strings.Join(replies, " || ") }
	const askHead, askTail = "| Range: bytes=0-4 -> run 206 | body 01234",
		"| Range: bytes=5- -> run 206 | body 56789"
	// Nothing is stored: each of two requests for a range runs the handler.
	not := func(name, reply string, fields ...string) show {
		ask := "| " + strings.Join(append(fields, "Range: bytes=0-4"), " | ") + " -> run any"
		return script(name, reply, ask, ask)
	}
	shows := []show{
		script("3.3/part_is_used_for_ranges_in_it", part(fresh, "0-4/10", "01234"),
			askHead+" | Cache-Status*=stored",
			"| Range: bytes=1-2 -> hit 206 | Content-Range: bytes 1-2/10 | Content-Length: 2 | body 12 | Age | "+
				fresh,
			"| Range: bytes=0-4 -> hit 206 | Content-Range: bytes 0-4/10 | body 01234"),
		script("3.3/part_is_used_for_the_last_bytes", part(fresh, "5-9/10", "56789"), askTail,
			"| Range: bytes=-5 -> hit 206 | body 56789",
			"| Range: bytes=-1 -> hit 206 | Content-Range: bytes 9-9/10 | body 9",
			"| Range: bytes=6- -> hit 206 | body 6789",
			"| Range: bytes=6-99 -> hit 206 | body 6789"),
		script("3.3/part_is_not_used_for_more", head, askHead, "| Range: bytes=4-5 -> run 206",
			"| Range: bytes=3- -> run 206",
			"| Range: bytes=-10 -> run 206", "| Range: bytes=20- -> run 206"),
		script("3.3/part_is_not_used_for_the_whole", then(head, fresh), askHead,
			"-> run | body / 2", "-> hit | body / 2"),
		script("3.3/part_is_not_used_for_head", then(head, fresh), askHead, "HEAD -> run",
			"-> run"),
		script("3.3/part_is_not_used_for_several", head, askHead,
			"| Range: bytes=0-0,2-2 -> run 206"),
		script("3.3/part_is_not_used_beside_conditions", head, askHead,
			`| If-None-Match: "a" | Range: bytes=0-1 -> run any`,
			`| If-Modified-Since: {now} | Range: bytes=0-1 -> run any`),
		script("3.3/part_is_selected_by_vary", part(tagged+` | Vary: Foo`, "0-4/10", "01234"),
			"| Foo: 1 | Range: bytes=0-4 -> run 206", "| Foo: 2 | Range: bytes=0-4 -> run 206",
			"| Foo: 2 | Range: bytes=0-1 -> hit 206", "| Foo: 1 | Range: bytes=0-1 -> run 206"),
		script("3.3/part_ends_with_its_lifetime", head, askHead, "wait 599s",
			"| Range: bytes=0-1 -> hit 206 | Age: 599", "wait 2s",
			"| Range: bytes=0-1 -> run 206"),
		script("3.3/part_is_not_used_on_error",
			then(part(tagged+`, stale-if-error=900`, "0-4/10", "01234"), "500"), askHead,
			"wait 700s",
			"| Range: bytes=0-1 -> run 500"),
		script("3.3/part_is_not_used_against_wishes", head, askHead, "wait 60s",
			"| Cache-Control: max-age=30 | Range: bytes=0-1 -> run 206",
			"| Cache-Control: no-cache | Range: bytes=0-1 -> run 206"),
		script("3.3/part_only_if_cached", head, askHead,
			"| Cache-Control: only-if-cached | Range: bytes=0-1 -> hit 206",
			"| Cache-Control: only-if-cached | Range: bytes=0-5 -> hit 504"),
		script("3.3/part_goes_when_the_resource_changes", then(head, "204", head), askHead,
			"POST -> run 204", "| Range: bytes=0-1 -> run 206"),
		script("3.3/part_displaces_nothing", then(fresh, head), "-> run | body / 1",
			"| Cache-Control: no-cache | Range: bytes=0-4 -> run 206", "-> hit | body / 1"),
		script("3.3/part_after_a_whole_is_not_stored_soon", then(fresh, head),
			"| Range: bytes=0-4 -> run", askHead, askHead, "wait 1h",
			askHead, "| Range: bytes=0-4 -> hit 206"),
		script("3.3/part_after_a_private_one_is_not_stored_soon",
			then(part(`Cache-Control: private`, "0-4/10", "01234"), head), askHead,
			askHead, askHead, "wait 1h", askHead, "| Range: bytes=0-4 -> hit 206"),
		script("3.3/type_of_a_part_is_not_guessed_by_another",
			`206 | `+fresh+` | Content-Range: bytes 0-17/20 | body <html>0123456789ab`,
			"| Range: bytes=0-17 -> run 206",
			"| Range: bytes=0-7 -> hit 206 | Content-Type*=text/html",
			"| Range: bytes=6-9 -> hit 206 | body 0123 | Content-Type*=text/plain"),
		script("9110-15.3.7/part_for_if_range_joins_others",
			then(part(tagged+` | A: 1`, "0-4/10", "01234"), tail), askHead,
			`| If-Range: "a" | Range: bytes=5- -> run 206 | Cache-Status*=stored`,
			"| Range: bytes=3-6 -> hit 206 | body 3456 | A: 1"),
		script("9110-15.3.7/part_for_if_range_displaces_nothing",
			then(head, part(fresh+` | ETag: "b"`, "5-9/10", "56789")), askHead,
			`| If-Range: "b" | Range: bytes=5- -> run 206 | Cache-Status!*=stored`,
			"| Range: bytes=0-1 -> hit 206 | body 01"),
		script("4/part_older_than_the_whole_is_not_used",
			then(head, `Cache-Control: max-age=5 | ETag: "b"`, fresh), "wait 1s", askHead,
			"wait 1s", "-> run", "wait 1s", "| Range: bytes=0-1 -> hit 206 | ETag: \"b\"",
			"wait 1m", "| Range: bytes=0-1 -> run"),
		script("4/part_as_old_as_the_whole_is_not_used",
			then(head, `Cache-Control: max-age=5 | ETag: "b"`, fresh), askHead, "-> run",
			"wait 1m", "| Range: bytes=0-1 -> run"),
		script("3.4/smaller_part_of_another_version_takes_its_place",
			then(head, part(fresh+` | ETag: "b"`, "8-9/10", "89")), askHead,
			"| Range: bytes=8- -> run 206", "| Range: bytes=8- -> hit 206 | ETag: \"b\""),
		script("4/part_of_the_same_version_as_the_whole_is_used",
			then(head, `Cache-Control: max-age=5 | ETag: "a" | body 0123456789`), askHead,
			"wait 1s", "-> run", "wait 1m", "| Range: bytes=0-1 -> hit 206 | body 01"),
		script("4/part_newer_than_the_whole_is_used",
			then(`Cache-Control: max-age=5 | ETag: "b"`, head), "-> run", "wait 1m", askHead,
			"| Range: bytes=0-1 -> hit 206 | body 01"),
		script("4/part_is_not_stored_beside_a_fresh_whole", then(fresh+` | ETag: "b"`, head),
			"-> run",
			"| Cache-Control: no-cache | Range: bytes=0-4 -> run 206 | Cache-Status!*=stored",
			"| Range: bytes=0-0 -> hit 206 | ETag: \"b\""),
		script("9110-13.1.5/part_has_the_tag", head, askHead,
			`| If-Range: "a" | Range: bytes=0-1 -> hit 206`,
			`| If-Range: "b" | Range: bytes=0-1 -> run 206`),

		not("3.3/short_part_is_not_stored", part(tagged, "0-4/10", "0123")),
		not("3.3/long_part_is_not_stored", part(tagged, "0-4/10", "012345")),
		not("9110-14.4/end_before_start_is_not_stored", part(tagged, "4-0/10", "01234")),
		not("9110-14.4/end_beyond_the_whole_is_not_stored", part(tagged, "0-4/4", "01234")),
		not("9110-14.4/unknown_whole_is_not_stored", part(tagged, "0-4/*", "01234")),
		not("9110-14.4/two_places_are_not_stored",
			part(tagged, "0-4/10", "01234")+" | Content-Range: bytes 5-9/10"),
		not("9110-14.4/other_units_are_not_stored",
			`206 | `+tagged+` | Content-Range: lines 0-4/10 | body 01234`),
		not("9110-15.3.7/without_its_place_is_not_stored", `206 | `+tagged+` | body 01234`),
		not("9110-15.3.7.2/several_parts_are_not_stored",
			`206 | `+tagged+` | Content-Type: multipart/byteranges; boundary=x | body 01234`),
		not("3.3/part_without_freshness_is_not_stored", part(`ETag: "a"`, "0-4/10", "01234")),
		not("3.3/private_part_is_not_stored",
			part(tagged+` | Cache-Control: private`, "0-4/10", "01234")),
		not("3.3/part_with_a_cookie_is_not_stored",
			part(tagged+` | Set-Cookie: a=b`, "0-4/10", "01234")),
		not("3.3/part_that_varies_by_all_is_not_stored",
			part(tagged+` | Vary: *`, "0-4/10", "01234")),
		not("3.3/part_for_somebody_is_not_stored", part(tagged, "0-4/10", "01234"),
			"Cookie: user=1"),
		not("3.3/part_for_authorization_is_not_stored",
			part(tagged+` | Cache-Control: public`, "0-4/10", "01234"), "Authorization: x"),
		not("3.3/part_is_not_stored_against_wishes", part(tagged, "0-4/10", "01234"),
			"Cache-Control: no-store"),
		not("3.3/digest_of_a_part_is_not_stored",
			part(tagged+` | Content-Digest: x`, "0-4/10", "01234")),
		not("3.3/encoded_part_is_not_stored",
			part(tagged+` | Content-Encoding: gzip`, "0-4/10", "01234")),
		not("9110-15.3.7/part_for_if_range_is_not_stored_alone", head, `If-Range: "a"`),

		script("3.4/parts_are_put_together",
			then(part(tagged+` | A: 1 | B: 1`, "0-4/10", "01234"),
				part(tagged+` | A: 2`, "4-7/10", "4567")),
			askHead, "| Range: bytes=4-7 -> run 206",
			"| Range: bytes=2-6 -> hit 206 | body 23456 | A: 2 | B: 1"),
		script("3.4/parts_with_a_gap",
			then(part(tagged, "0-1/10", "01"), part(tagged, "8-9/10", "89"),
				part(tagged, "4-5/10", "45")),
			"| Range: bytes=0-1 -> run 206", "| Range: bytes=8-9 -> run 206",
			"| Range: bytes=4-5 -> run 206",
			"| Range: bytes=0-0 -> hit 206 | body 0", "| Range: bytes=5-5 -> hit 206 | body 5",
			"| Range: bytes=-1 -> hit 206 | body 9",
			"| Range: bytes=1-4 -> run 206"),
		script("3.4/parts_become_the_whole", then(head, tail), askHead, askTail,
			"-> hit | body 0123456789 | !Content-Range | Content-Length: 10",
			"HEAD -> hit | Content-Length: 10",
			"| Range: bytes=3-6 -> hit 206 | body 3456", `| If-None-Match: "a" -> hit 304`),
		script("3.4/the_whole_has_the_age_of_its_parts",
			then(head, part(tagged+` | Age: 100`, "5-9/10", "56789")), askHead, askTail,
			"-> hit | Age>=100"),
	}
	for name, second := range map[string]string{
		"other_tag":      part(fresh+` | ETag: "b"`, "5-9/10", "56789"),
		"no_tag":         part(fresh, "5-9/10", "56789"),
		"weak_tag":       part(weak, "5-9/10", "56789"),
		"other_length":   part(tagged, "5-9/11", "56789"),
		"unquoted_tag":   part(fresh+` | ETag: a`, "5-9/10", "56789"),
		"only_by_a_date": part(fresh+` | Last-Modified: `+longAgo, "5-9/10", "56789"),
	} {
		first := strings.ReplaceAll(second, "5-9/10 | body 56789", "0-4/10 | body 01234")
		if name == "other_tag" || name == "other_length" {
			first = head
		}
		shows = append(shows,
			script("3.4/not_together/"+name, then(first, second, fresh), askHead, askTail,
				"| Range: bytes=3-6 -> run any", "-> run | body / 4"))
	}
	shows = append(shows, with(middleware.Options{MaxBody: 6},
		script("3.4/parts_are_not_above_max_body", then(head, tail), askHead, askTail,
			"| Range: bytes=5-6 -> hit 206", "| Range: bytes=0-1 -> run 206"),
		script("9110-15.3.7/part_for_if_range_that_joins_none",
			then(part(tagged, "0-3/10", "0123"), tail), "| Range: bytes=0-3 -> run 206",
			`| If-Range: "a" | Range: bytes=5- -> run 206`, "| Range: bytes=5-6 -> run 206"),
		script("3.4/larger_part_stays", then(head, part(tagged, "8-9/10", "89")), askHead,
			"| Range: bytes=8- -> run 206 | Cache-Status!*=stored",
			"| Range: bytes=0-1 -> hit 206 | body 01", "| Range: bytes=8- -> run 206"),
		not("3.3/part_above_max_body_is_not_stored", part(tagged, "0-6/10", "0123456")))...)
	for i := range shows {
		// A bubble, because it matters whether the lease is free at once.
		shows[i] = inBubble(shows[i])
	}
	return shows
}

// postShows test RFC 9110, section 9.3.3.
func postShows() []show {
	const own = fresh + ` | Content-Location: /`
	stored := func(name, reply string, ask ...string) show {
		return script("9110-9.3.3/"+name, reply, slices.Concat([]string{"POST -> run any"}, ask)...)
	}
	not := func(name, reply string) show { return stored(name, reply, "-> run any") }
	return append(with(middleware.Options{StorePosts: true},
		stored("is_stored_for_get", own, "-> hit | body / 1 | Content-Location: /",
			"HEAD -> hit | Content-Type: text/plain; charset=utf-8", "POST -> run | body / 2",
			"-> hit | body / 2"),
		script("9110-9.3.3/replaces_what_is_stored", own, "-> run | body / 1",
			"POST -> run | body / 2", "-> hit | body / 2"),
		stored("varies", own+` | Vary: Foo`, "| Foo: 1 -> run", "-> hit | body / 1"),
		not("without_content_location", fresh),
		not("other_content_location", fresh+` | Content-Location: /b`),
		not("fragment", own+`#a`),
		not("stale_from_the_start",
			`Cache-Control: max-age=0, stale-while-revalidate=60 | Content-Location: /`),
		not("declared_trailer", own+` | Trailer: X-Sum`),
		not("other_host", fresh+` | Content-Location: http://elsewhere.example/`),
		not("other_query", own+`?a`),
		not("two_content_locations", own+` | Content-Location: /`),
		not("without_freshness", `Content-Location: /`),
		not("created", `201 | `+own),
		not("private", own+` | Cache-Control: private`),
		not("with_a_cookie", own+` | Set-Cookie: a=b`),
		script("9110-9.3.3/for_somebody", fresh+`, public | Content-Location: /`,
			"POST | Cookie: user=1 -> run | body / 1", "-> run | body / 2",
			"POST | Authorization: x -> run | body / 3", "-> run | body / 4"),
		script("9110-9.3.3/other_methods", own, "PUT -> run", "-> run", "PATCH -> run", "-> run"),
	), append(with(middleware.Options{},
		not("unless_an_option_says_so", own),
	), with(middleware.Options{StorePosts: true, DefaultTTL: 60e9, Heuristic: 0.5, MaxBody: 5},
		not("freshness_by_the_options", `Content-Location: / | body 123`),
		not("freshness_by_the_options_and_public",
			`Cache-Control: public | Last-Modified: `+longAgo+` | Content-Location: / | body 123`),
		not("above_max_body", own+` | body 123456`),
		stored("at_max_body", own+` | body 12345`, "-> hit | body 12345"))...)...)
}
