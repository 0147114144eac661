package middleware_test

import (
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/middleware"
)

// invalidateShows test which stored responses unsafe methods remove: RFC 9111, section 4.4.
func invalidateShows() []show {
	created := fresh + ` || 201 | Location: %[1]s | Content-Location: %[2]s || ` + fresh
	location := func(url string) string { return fmt.Sprintf(created, url, "/none") }
	contentLocation := func(url string) string { return fmt.Sprintf(created, "/none", url) }
	var shows, named []show
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "BREW"} {
		name := strings.ReplaceAll(strings.ToLower(method), "-", "_")
		shows = append(shows,
			script("4.4/method_invalidates/"+name, fresh, "/a -> run", "/b -> run",
				method+" /a -> run", "/a -> run",
				"/b -> hit"),
			script("4.4/failed_method_does_not/"+name, fresh+` || 500`, "/a -> run",
				method+" /a -> run 500", "/a -> hit"),
			script("4.4/location_is_left_alone/"+name, location("/b"), "/b -> run",
				method+" /a -> run 201", "/b -> hit"),
			script("4.4/content_location_is_left_alone/"+name, contentLocation("/b"), "/b -> run",
				method+" /a -> run 201",
				"/b -> hit"))
		named = append(named,
			script("4.4/location_is_invalidated/"+name, location("/b"), "/b -> run",
				method+" /a -> run 201", "/b -> run"),
			script("4.4/content_location_is_invalidated/"+name, contentLocation("/b"), "/b -> run",
				method+" /a -> run 201",
				"/b -> run"))
	}
	for _, status := range []int{200, 201, 202, 204, 205, 299, 301, 302, 303, 307, 308} {
		shows = append(shows,
			script(fmt.Sprint("4.4/status_invalidates/", status), fmt.Sprint(fresh, " || ", status,
				" || ", fresh),
				"-> run", fmt.Sprint("POST -> run ", status), "-> run"))
	}
	for _, status := range []int{400, 403, 404, 409, 410, 412, 429, 500, 502, 503} {
		shows = append(shows,
			script(fmt.Sprint("4.4/status_does_not/", status),
				fmt.Sprint(fresh, " || ", status, " || ",
					fresh),
				"-> run", fmt.Sprint("POST -> run ", status), "-> hit"))
	}
	for _, method := range []string{"OPTIONS", "HEAD", "TRACE", "GET"} {
		shows = append(shows,
			script("4.4/safe_method_does_not/"+strings.ToLower(method), fresh, "/a -> run",
				method+" /a -> run/hit", "/a -> hit"))
	}
	for name, url := range map[string]string{
		"relative": "b", "path": "/x/b", "dots": "../x/./b", "absolute": "http://a.test/x/b",
		"capitals": "HTTP://A.test/x/b",
		"port":     "http://a.test:80/x/b", "host": "//a.test/x/b", "fragment": "/x/b#part",
	} {
		named = append(named,
			script("4.4/same_origin/"+name, location(url), "/x/b | Host: a.test -> run",
				"POST /x/a | Host: a.test -> run 201", "/x/b | Host: a.test -> run"))
	}
	for name, url := range map[string]string{
		"host": "http://b.test/b", "host_only": "//b.test/b", "port": "http://b.test:81/b",
		"scheme": "https://b.test/b",
		"user":   "http://a.test@b.test/b", "other_scheme": "ftp://b.test/b",
	} {
		named = append(named,
			script("4.4/other_origin_is_left_alone/"+name, location(url),
				"/b | Host: b.test -> run",
				"POST /a | Host: a.test -> run 201", "/b | Host: b.test -> hit"),
			script("4.4/other_origin_is_left_alone/content_location_"+name, contentLocation(url),
				"/b | Host: b.test -> run",
				"POST /a | Host: a.test -> run 201", "/b | Host: b.test -> hit"))
	}
	for name, url := range map[string]string{
		"https": "https://a.test/b", "port_81": "http://a.test:81/b", "ftp": "ftp://a.test/b",
	} {
		named = append(named,
			script("4.4/other_origin_is_left_alone/"+name, location(url),
				"/b | Host: a.test -> run",
				"POST /a | Host: a.test -> run 201", "/b | Host: a.test -> hit"))
	}
	for name, url := range map[string]string{
		"nonsense": "http://[::1", "empty": "", "bytes": "/%zz",
		"user": "http://user:secret@a.test/b", "opaque": "http:b",
		"mail": "mailto:a@a.test", "star": "*",
	} {
		named = append(named,
			script("4.4/location_that_is_none/"+name, location(url), "/a | Host: a.test -> run",
				"POST /a | Host: a.test -> run 201", "/a | Host: a.test -> run"))
	}
	shows = append(shows, with(middleware.Options{InvalidateLocations: true}, named...)...)
	return append(shows,
		script("4.4/all_variants_are_invalidated", varied, "| Foo: 1 -> run", "| Foo: 2 -> run",
			"POST -> run",
			"| Foo: 1 -> run",
			"| Foo: 2 -> run"),
		script("4.4/stale_is_invalidated",
			`Cache-Control: max-age=60, stale-while-revalidate=600 | ETag: "a"`, "-> run",
			"wait 61s",
			"POST -> run", "-> run"),
		script("4.4/query_is_part_of_the_target", fresh, "/a?x=1 -> run", "/a?x=2 -> run",
			"POST /a?x=1 -> run",
			"/a?x=1 -> run",
			"/a?x=2 -> hit"),
		script("4.4/location_of_a_get_means_nothing", fresh+` || 201 | Location: /b || `+fresh,
			"/b -> run", "/a -> run 201",
			"/b -> hit"),
		script("4.4/location_of_a_failure_means_nothing", fresh+` || 500 | Location: /b || `+fresh,
			"/b -> run",
			"POST /a -> run 500", "/b -> hit"),
	)
}
