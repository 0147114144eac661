package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
)

// conditionShows test conditions of the client: RFC 9111, section 4.3.2, and RFC 9110, sections 13
// and 15.4.5.
func conditionShows() []show {
	tagged := fresh + ` | ETag: "a"`
	weak := fresh + ` | ETag: W/"a"`
	dated := fresh + ` | Last-Modified: ` + longAgo
	shows := []show{
		twice("4.3.2/tag_of_what_is_stored", tagged, `hit 304 | ETag: "a"`, "",
			`If-None-Match: "a"`),
		twice("4.3.2/other_tag", tagged, `hit | ETag: "a"`, "", `If-None-Match: "b"`),
		twice("4.3.2/first_of_several_tags", tagged, "hit 304", "", `If-None-Match: "a", "b", "c"`),
		twice("4.3.2/second_of_several_tags", tagged, "hit 304", "",
			`If-None-Match: "b", "a", "c"`),
		twice("4.3.2/last_of_several_tags", tagged, "hit 304", "", `If-None-Match: "b", "c","a"`),
		twice("4.3.2/tag_on_its_own_line", tagged, "hit 304", "",
			`If-None-Match: "b" | If-None-Match: "a"`),
		twice("4.3.2/tag_within_a_tag", tagged, "hit", "", `If-None-Match: "b, \"a\"", "ab"`),
		twice("4.3.2/star", fresh, "hit 304", "", `If-None-Match: *`),
		twice("4.3.2/tag_but_none_stored", fresh, "hit", "", `If-None-Match: "a"`),
		twice("4.3.2/date_of_what_is_stored", dated, "hit 304", "", `If-Modified-Since: `+longAgo),
		twice("4.3.2/later_date", dated, "hit 304", "", `If-Modified-Since: {-1h}`),
		twice("4.3.2/earlier_date", dated, "hit", "",
			`If-Modified-Since: Tue, 31 Dec 2019 23:59:59 GMT`),
		twice("4.3.2/rfc_850_date", dated, "hit 304", "",
			`If-Modified-Since: Wednesday, 01-Jan-20 00:00:00 GMT`),
		twice("4.3.2/asctime_date", dated, "hit 304", "",
			`If-Modified-Since: Wed Jan  1 00:00:00 2020`),
		twice("4.3.2/date_of_the_answer", `Cache-Control: max-age=9000 | Date: {-1h}`, "hit 304",
			"",
			`If-Modified-Since: {-30m}`),
		twice("4.3.2/before_the_date_of_the_answer", `Cache-Control: max-age=9000 | Date: {-1h}`,
			"hit", "",
			`If-Modified-Since: {-2h}`),
		script("4.3.2/time_of_receipt", fresh, "-> run", "wait 100s",
			"| If-Modified-Since: {-50s} -> hit 304",
			"| If-Modified-Since: {-150s} -> hit"),
		script("4.3.2/if_match_is_for_the_handler", tagged, "-> run",
			`| If-Match: "b" -> run | saw If-Match: "b"`),
		script("4.3.2/if_unmodified_since_is_for_the_handler", dated, "-> run",
			`| If-Unmodified-Since: `+longAgo+` -> run | saw If-Unmodified-Since: `+longAgo),
		script("4.3.2/condition_of_an_unsafe_method_is_for_the_handler", tagged+` || 412`, "-> run",
			`PUT | If-None-Match: * -> run 412 | saw If-None-Match: *`),
		script("4.3.2/condition_on_a_miss_does_not_lose_the_whole_response", tagged,
			`| If-None-Match: "a" -> run any`,
			"-> hit | body / 1"),
		script("4.3.2/other_condition_on_a_miss", tagged, `| If-None-Match: "b" -> run | body / 1`,
			"-> hit | body / 1"),
		script("4.3.2/condition_on_a_miss_that_is_not_stored",
			`Cache-Control: no-store | ETag: "a"`,
			`| If-None-Match: "b" -> run | body / 1`),
		script("4.3.2/tag_of_the_handler_that_the_client_has", stale, "-> run",
			`| If-None-Match: "a" -> check 304 | ETag: "a"`),
		script("4.3.2/tag_of_the_handler_that_the_client_has_not", stale, "-> run",
			`| If-None-Match: "x" -> check | body / 1 | ETag: "a"`),
		script("4.3.2/date_after_validation", staleDate, "-> run",
			`| If-Modified-Since: `+longAgo+` -> check 304`),
		script("4.3.2/whole_response_to_a_condition", stale+` || `+fresh+` | ETag: "b"`, "-> run",
			`| If-None-Match: "a" -> run | body / 2 | ETag: "b"`),
		script("4.3.2/variants_have_their_own_tags",
			fresh+` | Vary: Foo | ETag: "a" || `+fresh+` | Vary: Foo | ETag: "b"`,
			"| Foo: 1 -> run", "| Foo: 2 -> run", `| Foo: 1 | If-None-Match: "b" -> hit | body / 1`,
			`| Foo: 2 | If-None-Match: "b" -> hit 304`),

		twice("9110-13.1.2/weak_tags_match", weak, `hit 304 | ETag: W/"a"`, "",
			`If-None-Match: W/"a"`),
		twice("9110-13.1.2/weak_tag_matches_strong", tagged, "hit 304", "", `If-None-Match: W/"a"`),
		twice("9110-13.1.2/strong_tag_matches_weak", weak, "hit 304", "", `If-None-Match: "a"`),
		twice("9110-13.1.2/tags_know_case", tagged, "hit", "", `If-None-Match: "A"`),
		twice("9110-13.1.3/ignored_beside_a_tag", tagged+` | Last-Modified: `+longAgo, "hit", "",
			`If-None-Match: "b" | If-Modified-Since: {now}`),
		twice("9110-13.1.3/tag_decides", tagged+` | Last-Modified: {now}`, "hit 304", "",
			`If-None-Match: "a" | If-Modified-Since: `+longAgo),
		twice("9110-13.1.3/no_date", dated, "hit", "", `If-Modified-Since: yesterday`),
		twice("9110-13.1.3/two_dates", dated, "hit", "",
			`If-Modified-Since: {-1h} | If-Modified-Since: {-1h}`),
		script("9110-13.1.3/other_methods", dated, "-> run",
			"POST | If-Modified-Since: {now} -> run"),
		twice("9110-13.2.1/ignored_for_other_statuses", `404 | `+tagged, "hit 404", "",
			`If-None-Match: "a"`),
		twice("9110-13.2.1/ignored_for_redirections", `301 | `+tagged+` | Location: /b`, "hit 301",
			"", `If-None-Match: *`),
		script("9110-13.2.1/head", tagged, "-> run", `HEAD | If-None-Match: "a" -> hit 304`),
		script("9110-13.2.2/tag_before_range", tagged, "-> run",
			`| If-None-Match: "a" | Range: bytes=0-1 -> hit 304`,
			`| If-None-Match: "b" | Range: bytes=0-1 -> hit 206`),

		twice("9110-15.4.5/fields_of_a_304",
			tagged+` | Content-Location: /b | Expires: Thu, 18 Aug 2050 02:01:18 GMT | Vary: Foo | `+
				`Date: {-1m}`,
			`hit 304 | `+tagged+
				` | Content-Location: /b | Expires: Thu, 18 Aug 2050 02:01:18 GMT | Vary: Foo | Date`,
			"", `If-None-Match: "a"`),
		twice("9110-15.4.5/no_content",
			tagged+` | Content-Type: text/x-own | Content-Encoding: x-none | Content-Language: de`,
			"hit 304 | body  | !Content-Length | !Content-Type | !Content-Encoding | !Content-Language | !Transfer-Encoding",
			"",
			`If-None-Match: "a"`),

		script("9110-6.6.1/date_is_kept", fresh+` | Date: {now}`, "-> run | Date: {now}",
			"wait 30s", "-> hit | Date: {-30s}"),
		script("9110-6.6.1/date_is_added", fresh, "-> run", "wait 30s", "-> hit | Date: {-30s}"),
		script("9110-9.3.2/head_has_the_fields_of_get", tagged+` | X: 1`, "-> run",
			`HEAD -> hit | ETag: "a" | X: 1 | `+
				`Cache-Control: max-age=600 | Content-Length: 3 | Content-Type | body `),
		coded("9110-15.2/interim_responses_are_passed_on", fresh, passedOn),
	}
	return shows
}

func passedOn(s *site) {
	s.replies[0].do = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "/ 1")
	}
	var got []int
	ctx := httptrace.WithClientTrace(s.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if h.Get("Link") != "" {
				got = append(got, code)
			}
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		s.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	res.Body.Close()
	if !slices.Equal(got, []int{http.StatusEarlyHints}) || res.StatusCode != http.StatusOK {
		s.Errorf("interim responses %v, then %d", got, res.StatusCode)
	}
}

// rangeShows test ranges of stored responses: RFC 9111, section 3.3, and RFC 9110, sections 13.1.5,
// 14 and 15.3.7.
func rangeShows() []show {
	ten := fresh + ` | body 0123456789`
	tagged := ten + ` | ETag: "a"`
	dated := ten + ` | Last-Modified: ` + longAgo
	return []show{
		twice("3.3/parts_are_marked", ten,
			"hit 206 | Content-Range: bytes 0-1/10 | Content-Length: 2 | body 01", "",
			`Range: bytes=0-1`),
		twice("9110-14.2/to_the_end", ten, "hit 206 | Content-Range: bytes 8-9/10 | body 89", "",
			`Range: bytes=8-`),
		twice("9110-14.2/the_last_bytes", ten, "hit 206 | Content-Range: bytes 9-9/10 | body 9", "",
			`Range: bytes=-1`),
		twice("9110-14.2/beyond_the_end", ten, "hit 206 | Content-Range: bytes 8-9/10 | body 89",
			"", `Range: bytes=8-100`),
		twice("9110-14.2/all_of_it", ten, "hit 206 | Content-Range: bytes 0-9/10 | body 0123456789",
			"", `Range: bytes=0-`),
		twice("9110-14.2/unknown_unit_is_ignored", ten, "hit | body 0123456789", "",
			`Range: lines=0-1`),
		script("9110-14.2/other_methods_are_whole", ten, "-> run",
			"HEAD | Range: bytes=0-1 -> hit | Content-Length: 10 | !Content-Range"),
		twice("9110-14.2/other_statuses_are_whole", `404 | `+ten,
			"hit 404 | body 0123456789 | !Content-Range", "",
			`Range: bytes=0-1`),
		script("9110-14.2/miss_is_for_the_handler", ten,
			"| Range: bytes=0-1 -> run any | saw Range: bytes=0-1"),
		script("9110-14.2/miss_stores_nothing_wrong",
			`206 | `+fresh+` | Content-Range: bytes 0-1/10 | body 01 || `+ten,
			"| Range: bytes=0-1 -> run 206 | body 01", "-> run | body 0123456789",
			"| Range: bytes=2-3 -> hit 206 | body 23"),
		script("9110-14.2/stale_is_validated_first", ten+` | ETag: "a" | Age: 700`, "-> run",
			"| Range: bytes=0-1 -> run/check any"),
		twice("9110-14.4/no_such_range", ten, "hit 416 | Content-Range: bytes */10", "",
			`Range: bytes=20-`),
		twice("9110-15.3.7/fields_of_a_206",
			tagged+` | Content-Location: /b | Expires: Thu, 18 Aug 2050 02:01:18 GMT | Vary: Foo | A: 1`,
			`hit 206 | ETag: "a" | Content-Location: /b | Expires: Thu, 18 Aug 2050 02:01:18 GMT | Vary: Foo | Date | `+
				fresh+` | A: 1`,
			"", `Range: bytes=0-1`),
		twice("9110-15.3.7/age_of_a_206", ten+` | Age: 30`, "hit 206 | Age>=30", "",
			`Range: bytes=0-1`),
		twice("9110-15.3.7.2/several_parts", ten,
			"hit 206 | Content-Type*=multipart/byteranges | !Content-Range", "",
			`Range: bytes=0-1,8-9`),

		twice("9110-13.1.5/same_tag", tagged, "hit 206 | body 01", "",
			`Range: bytes=0-1 | If-Range: "a"`),
		twice("9110-13.1.5/other_tag", tagged, "hit | body 0123456789", "",
			`Range: bytes=0-1 | If-Range: "b"`),
		twice("9110-13.1.5/weak_tag_of_the_client", tagged, "hit | body 0123456789", "",
			`Range: bytes=0-1 | If-Range: W/"a"`),
		twice("9110-13.1.5/weak_tag_of_the_response", ten+` | ETag: W/"a"`, "hit | body 0123456789",
			"",
			`Range: bytes=0-1 | If-Range: W/"a"`),
		twice("9110-13.1.5/same_date", dated, "hit 206 | body 01", "",
			`Range: bytes=0-1 | If-Range: `+longAgo),
		twice("9110-13.1.5/later_date", dated, "hit | body 0123456789", "",
			`Range: bytes=0-1 | If-Range: {-1h}`),
		twice("9110-13.1.5/earlier_date", dated, "hit | body 0123456789", "",
			`Range: bytes=0-1 | If-Range: Tue, 31 Dec 2019 23:59:59 GMT`),
		twice("9110-13.1.5/weak_date",
			ten+` | Last-Modified: Thu, 18 Aug 2022 02:01:18 GMT | Date: Thu, 18 Aug 2022 02:01:18 GMT | `+
				`Cache-Control: s-maxage=2000000000`, "hit | body 0123456789", "",
			`Range: bytes=0-1 | If-Range: Thu, 18 Aug 2022 02:01:18 GMT`),
		twice("9110-13.1.5/ignored_without_range", tagged, "hit | body 0123456789", "",
			`If-Range: "b"`),
	}
}
