package middlewaretest

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
)

// changedByCaches are the fields in which the response that a cache serves may differ from the one
// that it stored.
var changedByCaches = []string{
	"Age", "Date", "Expires", "Via", "Warning", "Cache-Status", "X-Cache", "Content-Length",
	"Transfer-Encoding", "Connection", "Server-Timing",
}

// sets are the fields whose members have no order (RFC 9110, sections 10.2.1 and 12.5.5, and the
// Fetch standard's section 3.3). Routers write the members in the order of a map.
var sets = []string{
	"Allow", "Vary", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
	"Access-Control-Expose-Headers",
}

// mark is part of the values that variations make up, except those that a handler may know, such as
// gzip. It occurs nowhere else. It has no digits, because the audit doesn't compare digits that
// change by themselves.
const mark = "zqauditzq"

// response is the response to a request.
type response struct {
	status int // 0: the handler panicked
	header http.Header
	body   []byte
}

// send lets a handler answer a request, as a server would.
func send(h http.Handler, r *http.Request) (got response) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			got = response{}
		}
	}()
	h.ServeHTTP(w, r)
	got = response{w.Code, w.Result().Header, w.Body.Bytes()}
	for _, name := range sets {
		if lines, said := got.header[name]; said {
			got.header[name] = members(lines)
		}
	}
	if r.Method == http.MethodHead {
		got.body = nil
	} else if _, said := got.header["Content-Type"]; !said && len(got.body) > 0 {
		got.header.Set("Content-Type", http.DetectContentType(got.body))
	}
	return got
}

// members returns the members of a list, one a line, in the order of the alphabet.
func members(lines []string) []string {
	all := strings.Split(strings.Join(lines, ","), ",")
	for i, member := range all {
		all[i] = strings.TrimSpace(member)
	}
	slices.Sort(all)
	return all
}

// alone has the responses that a request gets from an empty cache, the first time and the second
// time.
type alone struct {
	all      []response
	unstable map[string]bool          // fields of the response
	shape    func(body []byte) []byte // returns the part of the body that is always the same
}

// changing matches parts of a page that may differ each time the page is made: numbers, times,
// random ids.
var changing = regexp.MustCompile(`[0-9a-fA-F]*[0-9][0-9a-fA-F]*`)

func whole(body []byte) []byte          { return body }
func withoutNumbers(body []byte) []byte { return changing.ReplaceAll(body, []byte("#")) }
func nothing([]byte) []byte             { return nil }

const perAsk = 4

// ask adds the responses of two handlers with an empty cache. It sends the request to each handler
// twice, because the second response shows the changes that caching itself causes.
func (c Config) ask(a *alone, sample *http.Request, change func(*http.Request)) {
	for range perAsk / 2 {
		h := c.Build()
		for range 2 {
			a.all = append(a.all, send(h, request(sample, change)))
		}
	}
	a.unstable, a.shape = map[string]bool{}, whole
	for i, one := range a.all {
		for _, other := range a.all[:i] {
			if one.status == other.status {
				a.compare(one, other)
			}
		}
	}
}

// compare records the differences between two responses that should be the same.
func (a *alone) compare(one, other response) {
	for name := range merged(one.header, other.header) {
		if !slices.Equal(one.header[name], other.header[name]) {
			a.unstable[name] = true
		}
	}
	if !bytes.Equal(a.shape(one.body), a.shape(other.body)) {
		if a.shape = withoutNumbers; !bytes.Equal(withoutNumbers(one.body),
			withoutNumbers(other.body)) {
			a.shape = nothing
		}
	}
}

// differs returns the difference between a response and the right responses, or "" if the response
// equals one of them.
func (a *alone) differs(got response, ignore []string) (differ string) {
	for _, want := range a.all {
		if one := a.differsFrom(want, got, ignore); one == "" {
			return ""
		} else if differ == "" || want.status == got.status {
			differ = one
		}
	}
	return differ
}

func merged(a, b http.Header) http.Header {
	all := maps.Clone(a)
	if all == nil {
		all = http.Header{}
	}
	maps.Copy(all, b)
	return all
}

func (a *alone) differsFrom(want, got response, ignore []string) string {
	if got.status != want.status {
		return fmt.Sprintf("status %d, not %d", got.status, want.status)
	}
	for _, name := range slices.Sorted(maps.Keys(merged(want.header, got.header))) {
		was, is := strings.Join(want.header[name], " / "), strings.Join(got.header[name], " / ")
		if was == is || slices.ContainsFunc(ignore, func(i string) bool {
			return strings.EqualFold(i, name)
		}) || a.unstable[name] && !strange(is, was) {
			continue
		}
		return fmt.Sprintf("field %s is %q, not %q", name, is, was)
	}
	if was, is := a.shape(want.body), a.shape(got.body); !bytes.Equal(was, is) {
		return around(is, was)
	}
	if strange(string(got.body), string(want.body)) {
		return around(got.body, want.body)
	}
	return ""
}

// strange reports whether the text "is" has a variation's mark and the text "was" doesn't have it.
func strange(is, was string) bool {
	return strings.Contains(strings.ToLower(is), mark) &&
		!strings.Contains(strings.ToLower(was), mark)
}

// around shows the place where two bodies begin to differ.
func around(is, was []byte) string {
	i := 0
	for i < len(is) && i < len(was) && is[i] == was[i] {
		i++
	}
	from := max(0, i-20)
	cut := func(b []byte) []byte { return b[from:min(len(b), i+60)] }
	return fmt.Sprintf("from byte %d on the body is %q, not %q", i, cut(is), cut(was))
}
