package middleware_test

import (
	"net/http"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/middleware"
)

// reuseShows test which requests may get a stored response: RFC 9111, sections 4, 4.2.4 and 5.2.2.
func reuseShows() []show {
	shows := []show{
		script("4/path_is_in_the_key", fresh, "/a -> run", "/b -> run", "/a -> hit", "/b -> hit",
			"/A -> run"),
		script("4/query_is_in_the_key", fresh, "/a?x=1 -> run", "/a?x=2 -> run", "/a -> run",
			"/a? -> run/hit"),
		script("4/same_query_is_the_same", fresh, "/a?x=1&y=2 -> run", "/a?x=1&y=2 -> hit",
			"/a?y=2&x=1 -> run"),
		script("4/host_is_in_the_key", fresh, "| Host: a.test -> run", "| Host: b.test -> run",
			"| Host: a.test -> hit"),
		script("4/host_as_received", fresh, "| Host: a.test -> run", "| Host: A.TEST -> run",
			"| Host: a.test:80 -> run",
			"| Host: a.test -> hit", "POST | Host: a.test -> run", "| Host: A.TEST -> run",
			"| Host: a.test:80 -> run"),
		script("4/port_is_in_the_key", fresh, "| Host: a.test -> run",
			"| Host: a.test:8080 -> run"),
		script("4/encoded_slash_is_no_slash", fresh, "/a%2Fb -> run any", "/a/b -> run any"),
		script("4/head_is_answered_from_get", fresh+` | X: 1`, "GET -> run",
			"HEAD -> hit | X: 1 | Content-Length: 3"),
		script("4/post_is_not_answered_from_get", fresh, "GET -> run", "POST -> run | saw POST"),
		script("4/options_is_not_answered_from_get", fresh, "GET -> run",
			"OPTIONS -> run | saw OPTIONS", "GET -> hit"),
		script("4/unsafe_methods_are_written_through", fresh, "POST -> run", "POST -> run",
			"PUT -> run", "PUT -> run",
			"DELETE -> run", "PATCH -> run", "BREW -> run", "BREW -> run"),
		twice("4/age_is_told", fresh, "hit | Age>=0 | Age<=5"),
		twice("4/age_takes_the_place_of_the_one_before", fresh+` | Age: 30`,
			"hit | Age>=30 | Age<=40"),
		twice("4/age_is_told_when_expires_counts", `Expires: {+1h} | Date: {now} | Age: 30`,
			"hit | Age>=30 | Age<=40"),
		twice("4/age_is_told_for_not_modified", fresh+` | Age: 30 | ETag: "a"`, "hit 304 | Age>=30",
			"", `If-None-Match: "a"`),
		script("4/newest_response_is_used", fresh, "-> run | body / 1",
			"| Cache-Control: no-cache -> run | body / 2",
			"-> hit | body / 2"),
		script("4/cookies_are_not_in_the_key", fresh, "-> run", "| Cookie: a=b -> hit"),
		inBubble(coded("4/requests_are_collapsed", fresh, collapse)),
		inBubble(coded("4/collapsed_requests_that_may_not_share_are_forwarded",
			`Cache-Control: private`, collapseInVain)),

		twice("4.2.4/stale_is_not_used",
			`Cache-Control: max-age=60 | Age: 100 | ETag: "a" || `+fresh, "run"),
		script("4.2.4/stale_is_not_used_for_an_error", stale+` || 503`, "-> run", "-> run 503"),
	}
	for name, directives := range map[string]string{
		"must_revalidate":  "must-revalidate, max-age=60",
		"proxy_revalidate": "proxy-revalidate, max-age=60",
		"no_cache":         "no-cache, max-age=60", "s_maxage": "s-maxage=60",
	} {
		said := `Cache-Control: ` + directives + ` | ETag: "a"`
		sometimes := middleware.Options{
			StaleIfError: mustDuration("1h"), StaleWhileRevalidate: mustDuration("1h"),
		}
		shows = append(shows, with(sometimes,
			script("4.2.4/prohibited_for_errors/"+name, said+` || 503`, "-> run", "wait 90s",
				"-> run 503"),
			script("4.2.4/prohibited_while_revalidating/"+name, said+` || `+fresh, "-> run",
				"wait 90s", "-> run | body / 2"),
			script("4.2.4/prohibited_for_max_stale/"+name, said+` || `+fresh, "-> run", "wait 90s",
				"| Cache-Control: max-stale=1000 -> run | body / 2"),
			script("4.2.4/prohibited_for_only_if_cached/"+name, said, "-> run", "wait 90s",
				"| Cache-Control: only-if-cached, max-stale -> hit 504"),
			inBubble(coded("4.2.4/prohibited_when_the_handler_breaks_off/"+name, said+` || `+fresh,
				breaksOff)),
		)...)
	}
	return shows
}

func breaksOff(s *site) {
	s.replies[1].do = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	s.step("-> run")
	s.step("wait 90s")
	if a := s.ask(http.MethodGet, "/", nil); a.err == nil && a.status < 500 {
		s.Errorf("answered %d %q", a.status, a.body)
	}
}

// stale is a response that is stored and no longer fresh.
const stale = `Cache-Control: max-age=60 | Age: 100 | ETag: "a"`

// together sends n requests at the same time. They differ in a field that has no meaning for the
// cache. The runs of the handler end step by step. When no goroutine moves any more, together calls
// the next function of then with the number of runs so far, and lets all current runs end.
func (s *site) together(n int, then ...func(runs int)) []answer {
	release := make(chan struct{})
	s.replies[0].do = func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		gate := release
		s.mu.Unlock()
		<-gate
		w.Header().Set("For", r.Header.Get("From"))
	}
	answers := make([]answer, n)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() {
			answers[i] = s.fetch(http.MethodGet, "/", http.Header{"From": {string(rune('a' + i))}})
		})
	}
	for _, look := range then {
		synctest.Wait()
		runs, _ := s.ran()
		look(runs)
		s.mu.Lock()
		open := release
		release = make(chan struct{})
		s.mu.Unlock()
		close(open)
	}
	wait.Wait()
	return answers
}

func collapse(s *site) {
	answers := s.together(8, func(runs int) {
		if runs != 1 {
			s.Errorf("the handler runs %d times for 8 requests at a time", runs)
		}
	})
	collapsed := 0
	for i, a := range answers {
		if a.err != nil || a.header.Get("For") != answers[0].header.Get("For") {
			s.Errorf("request %d: %v, the answer for %q", i, a.err, a.header.Get("For"))
		}
		if strings.Contains(a.header.Get("Cache-Status"), "; collapsed") {
			collapsed++
		}
	}
	if collapsed != 7 {
		s.Errorf("%d answers tell that they were collapsed", collapsed)
	}
}

func collapseInVain(s *site) {
	answers := s.together(8, func(int) {}, func(runs int) {
		if runs != 8 {
			s.Errorf("of 8 requests %d run once it is known that they can't share", runs)
		}
	})
	for i, a := range answers {
		if want := string(rune('a' + i)); a.err != nil || a.header.Get("For") != want {
			s.Errorf("request %d got what was for %q, %v", i, a.header.Get("For"), a.err)
		}
	}
}
