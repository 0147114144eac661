package middleware_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/middleware"
)

// show is one subtest of TestConformance: the handler's responses, the requests to the cache, and
// the expected answers.
type show struct {
	name    string // section/rule
	replies []reply
	ask     []string
	do      func(s *site) // instead of ask
	opts    middleware.Options
	clock   bool // the show needs a clock that it can move forward
}

// script is a show of steps, one after another. Each is a line
//
//	METHOD PATH | Field: value -> outcome status | what else
//
// Parts that are left out have defaults: GET, /, and 200. The outcome is
//
//	run    the handler ran, and its answer is the answer
//	check  the handler ran, said that nothing has changed, and what was stored is the answer
//	hit    the handler did not run
//	stale  what was stored is the answer, and the handler ran in the background
//	kept   the handler ran, failed, and what was stored is the answer
//	any    of these or others
//
// or several of these, separated by "/". Further expectations are "Field: value", "Field!=value",
// "Field" (it is there), "!Field" (it isn't), "Field>=1", "Field<=1", "Field*=part",
// "Field!*=part", "body text", "body!=text", and for the request that the handler saw "saw Field:
// value", "saw !Field" and so on, and "saw METHOD". "wait 1m" moves the clock forward. In a value
// {now}, {+1h}, {-1h:850} and {+1h:asctime} are dates.
func script(name, replies string, ask ...string) show {
	clock := slices.ContainsFunc(ask, func(line string) bool {
		return strings.HasPrefix(line, "wait ")
	})
	return show{name: name, replies: parseReplies(replies), ask: ask, clock: clock}
}

// twice sends the same request two times, and names the outcome of the second one. The fields of
// the two requests can differ.
func twice(name, replies, second string, fields ...string) show {
	fields = append(fields, "", "")
	return script(name, replies, asking(fields[0])+"-> run/check any",
		asking(fields[1])+"-> "+second)
}

func asking(fields string) string {
	if fields == "" {
		return ""
	}
	return "| " + fields + " "
}

// coded is a show that a few lines of a script can't express.
func coded(name, replies string, do func(s *site)) show {
	return show{name: name, replies: parseReplies(replies), do: do}
}

// inBubble runs a show in a bubble. The show needs to know when all goroutines are idle.
func inBubble(sh show) show {
	sh.clock = true
	return sh
}

// with sets the options of shows.
func with(opts middleware.Options, shows ...show) []show {
	for i := range shows {
		shows[i].opts = opts
	}
	return shows
}

func (sh show) run(t *testing.T) {
	if sh.clock {
		synctest.Test(t, sh.act)
		return
	}
	sh.act(t)
}

func (sh show) act(t *testing.T) {
	s := serve(t, sh.opts, sh.replies, sh.clock)
	if sh.do != nil {
		sh.do(s)
		return
	}
	for i, line := range sh.ask {
		if !s.step(line) {
			t.Fatalf("step %d of\n\t%s", i+1, strings.Join(sh.ask, "\n\t"))
		}
	}
}

// step executes one line of a script, and reports whether all expectations were met.
func (s *site) step(line string) bool {
	s.Helper()
	if d, ok := strings.CutPrefix(line, "wait "); ok {
		time.Sleep(mustDuration(d)) // in a bubble
		return true
	}
	request, expected, ok := strings.Cut(line, "-> ")
	if !ok {
		s.Fatalf("%q says nothing of what is expected", line)
	}
	method, path, fields := parseRequest(request)
	got := s.ask(method, path, fields)
	wants := strings.Split(expected, " | ")
	outcome, status := parseOutcome(wants[0])
	good := true
	fail := func(format string, args ...any) {
		s.Helper()
		good = false
		s.Errorf("%s: "+format, append([]any{line}, args...)...)
	}
	if got.err != nil {
		fail("%v", got.err)
		return false
	}
	if status != "any" && status != strconv.Itoa(got.status) {
		fail("status %d", got.status)
	}
	if why := got.isnt(outcome, method, path); why != "" {
		fail("%s", why)
	}
	for _, want := range wants[1:] {
		if why := got.lacks(want); why != "" {
			fail("%s", why)
		}
	}
	if !good {
		s.Logf("answered %d %v %q, %d runs", got.status, got.header, got.body, got.runs)
	}
	return good
}

// isnt returns the reason why an answer has none of the outcomes, or "".
func (a answer) isnt(outcomes, method, path string) string {
	checked := a.last.status == http.StatusNotModified
	old, made := true, true // old: the handler wrote this body before; made: in its last run
	if path, _, _ = strings.Cut(path, "?"); method != http.MethodHead &&
		strings.HasPrefix(a.body, path+" ") {
		made = a.body == fmt.Sprint(path, " ", a.last.number)
		old = !made
	}
	for outcome := range strings.SplitSeq(outcomes, "/") {
		switch {
		case outcome == "run" && a.runs == 1 && !checked && made,
			outcome == "check" && a.runs == 1 && checked && old,
			outcome == "hit" && a.runs == 0,
			outcome == "stale" && a.runs == 1 && old && a.last.status < 500,
			outcome == "kept" && a.runs == 1 && old && a.last.status >= 500 && a.status < 500,
			outcome == "any":
			return ""
		}
	}
	return fmt.Sprintf("no %s: %d runs of the handler (the last one said %d), body %q", outcomes,
		a.runs, a.last.status,
		a.body)
}

// lacks returns the part of an expectation that isn't met, or "".
func (a answer) lacks(want string) string {
	header := a.header
	if text, ok := strings.CutPrefix(want, "body "); ok {
		if a.body != text {
			return fmt.Sprintf("body %q", a.body)
		}
		return ""
	}
	if text, ok := strings.CutPrefix(want, "body!="); ok {
		if a.body == text {
			return fmt.Sprintf("body %q", a.body)
		}
		return ""
	}
	if text, ok := strings.CutPrefix(want, "saw "); ok {
		if text == strings.ToUpper(text) && !strings.ContainsAny(text, "!:") {
			if a.last.saw.Method != text {
				return "the handler saw " + a.last.saw.Method
			}
			return ""
		}
		header, want = a.last.saw.Header, text
	}
	m := expectation.FindStringSubmatch(want)
	if m == nil {
		return "no expectation: " + want
	}
	name, op, value := http.CanonicalHeaderKey(m[2]), m[3], dates(m[4])
	values, there := header[name]
	got := strings.Join(values, ", ")
	number, err := strconv.Atoi(got)
	var good bool
	switch {
	case m[1] == "!":
		good = !there
	case op == "":
		good = there
	case op == ": ":
		good = got == value
	case op == "!=":
		good = got != value
	case op == "*=":
		good = strings.Contains(got, value)
	case op == "!*=":
		good = !strings.Contains(got, value)
	case op == ">=":
		good = err == nil && number >= mustInt(value)
	case op == "<=":
		good = err == nil && number <= mustInt(value)
	}
	if good {
		return ""
	}
	return fmt.Sprintf("%s is %q, not as in %q", name, values, want)
}

var expectation = regexp.MustCompile(`^(!?)([\w-]+)(: |>=|<=|!=|\*=|!\*=|)(.*)$`)

func parseRequest(text string) (method, path string, fields http.Header) {
	method, path = http.MethodGet, "/"
	line, rest, _ := strings.Cut(text, "|")
	for word := range strings.FieldsSeq(line) {
		if word[0] == '/' {
			path = word
		} else {
			method = word
		}
	}
	return method, path, parseFields(strings.Split(rest, " | "))
}

func parseOutcome(text string) (outcome, status string) {
	outcome, status, _ = strings.Cut(strings.TrimSpace(text), " ")
	if status == "" {
		status = "200"
	}
	return outcome, status
}

// parseFields reads parts of the form "Name: value" and leaves out other parts. The value is the
// text after the colon and its space, including blanks at the end.
func parseFields(parts []string) http.Header {
	h := http.Header{}
	for _, part := range parts {
		name, value, ok := strings.Cut(strings.TrimLeft(part, " "), ":")
		if ok && !strings.Contains(name, " ") {
			h.Add(name, dates(strings.TrimPrefix(value, " ")))
		}
	}
	return h
}

// reply is the response of one run of the handler.
type reply struct {
	status int
	parts  []string // fields, dates not yet put in
	body   string   // default: the path and the number of the run
	delay  time.Duration
	always bool // conditions are not evaluated
	do     func(w http.ResponseWriter, r *http.Request)
}

func (r reply) fields() http.Header { return parseFields(r.parts) }

// parseReplies reads replies that are separated by " || ". The parts of a reply are separated by "
// | ": the status if it isn't 200, fields, "body text", "after 1s" for the time that the handler
// takes, and "always" if the handler doesn't evaluate conditions.
func parseReplies(text string) []reply {
	var replies []reply
	for one := range strings.SplitSeq(text, " || ") {
		r := reply{status: http.StatusOK, parts: strings.Split(one, " | ")}
		if n, err := strconv.Atoi(r.parts[0]); err == nil {
			r.status, r.parts = n, r.parts[1:]
		}
		for _, part := range r.parts {
			if body, ok := strings.CutPrefix(part, "body "); ok {
				r.body = body
			}
			if part == "always" {
				r.always = true
			}
			if d, ok := strings.CutPrefix(part, "after "); ok {
				r.delay = mustDuration(d)
			}
		}
		replies = append(replies, r)
	}
	return replies
}

var datePattern = regexp.MustCompile(`\{(now|[+-]\w+)(:\w+)?\}`)

// dates replaces the dates in a value.
func dates(value string) string {
	return datePattern.ReplaceAllStringFunc(value, func(text string) string {
		m := datePattern.FindStringSubmatch(text)
		at := time.Now().UTC()
		if m[1] != "now" {
			at = at.Add(mustDuration(m[1]))
		}
		switch m[2] {
		case ":850":
			return at.Format("Monday, 02-Jan-06 15:04:05 GMT")
		case ":asctime":
			return at.Format(time.ANSIC)
		}
		return at.Format(http.TimeFormat)
	})
}

func mustDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func mustInt(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
