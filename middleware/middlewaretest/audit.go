package middlewaretest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Kind is the kind of a [Finding].
type Kind string

// The kinds of findings.
const (
	Poisoned Kind = "poisoned" // any client can change the response that other clients get
	Leaked   Kind = "leaked"   // a response that was made for one user goes to other clients
)

// Finding is a response that depends on another client's request.
type Finding struct {
	Kind   Kind
	Varied string // the part of the request that was varied
	Differ string // the difference from the response that Second gets when it comes first
	Advice string // a way to mend the handler

	First, Second *http.Request // sent in this order to a handler with an empty cache
}

// String returns the finding as a report for people.
func (f Finding) String() string {
	return fmt.Sprintf(
		"%s: %s\n  first:  %s\n  second: %s\n  differs from what the second gets alone: %s\n  to do: %s",
		f.Kind, f.Varied, line(f.First), line(f.Second), f.Differ, f.Advice)
}

// line returns a request as one line of text.
func line(r *http.Request) string {
	var b strings.Builder
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	fmt.Fprintf(&b, "%s %s://%s%s", r.Method, scheme, r.Host, r.RequestURI)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&b, " | %s: %s", name, value)
		}
	}
	if r.TLS != nil && r.TLS.ServerName != withoutPort(r.Host) {
		fmt.Fprintf(&b, " | by TLS for %q", r.TLS.ServerName)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		fmt.Fprintf(&b, " | with the certificate of %s", r.TLS.PeerCertificates[0].Subject)
	}
	if r.Proto != "HTTP/1.1" {
		fmt.Fprintf(&b, " | by %s", r.Proto)
	}
	if r.RemoteAddr != somebody {
		fmt.Fprintf(&b, " | from %s", r.RemoteAddr)
	}
	if r.ContentLength > 0 {
		fmt.Fprintf(&b, " | and a body of %d bytes", r.ContentLength)
	}
	return b.String()
}

// Config configures [Run].
type Config struct {
	// Build returns the handler with its cache, as the program makes it. The cache must be empty.
	// Run calls Build for each pair of requests and for each request alone, more than a thousand
	// times for each sample. Build may return the same handler each time if it empties the cache.
	// Required.
	Build func() http.Handler

	// Fields and Cookies are names of request fields and cookies that are varied in addition to
	// those that the package documentation lists.
	Fields, Cookies []string

	// Users are clients that the handler knows, by name. Each function adds to a request what its
	// user would send, such as the cookie of a session. Default: only made-up users that the
	// handler doesn't know.
	Users map[string]func(*http.Request)

	// Ignore are response fields that are not compared, in addition to those that every cache
	// changes.
	Ignore []string
}

// Audit calls [Run] and reports each finding as an error of the test. Each sample is a GET that a
// client may send.
func Audit(t testing.TB, build func() http.Handler, samples ...*http.Request) {
	t.Helper()
	for _, f := range Run(Config{Build: build}, samples...) {
		t.Errorf("%v", f)
	}
}

// Run audits a handler with samples and returns the findings, the worst first. It doesn't change
// the samples. It panics if Build is nil, if there is no sample, or if a sample isn't a GET or has
// a ContentLength other than 0.
func Run(c Config, samples ...*http.Request) (found []Finding) {
	if c.Build == nil || len(samples) == 0 {
		panic("middlewaretest: Run needs Config.Build and a sample")
	}
	for _, sample := range samples {
		if sample.Method != http.MethodGet && sample.Method != "" || sample.ContentLength != 0 {
			panic("middlewaretest: a sample is not a plain GET: " + sample.Method + " " +
				sample.URL.String())
		}
		found = append(found, c.audit(sample)...)
	}
	// Leaked before poisoned.
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Kind, b.Kind) })
	return found
}

func (c Config) audit(sample *http.Request) (found []Finding) {
	c.Ignore = append(slices.Clone(changedByCaches), c.Ignore...)
	known := map[string]*alone{} // by the text of the request
	aloneOf := func(change func(*http.Request)) *alone {
		id := line(request(sample, change))
		if known[id] == nil {
			known[id] = &alone{}
			c.ask(known[id], sample, change)
		}
		return known[id]
	}
	said := map[string]bool{}
	for _, v := range c.variations(sample) {
		if said[v.what] {
			continue
		}
		victim, other := aloneOf(v.victim), aloneOf(v.change)
		f := Finding{Kind: v.kind, Varied: v.what, Advice: v.advice}
		// If the first order shows a problem, the other order would show the same problem again.
		// One finding is enough.
		if f.Differ = c.try(sample, v.change, v.victim, victim); f.Differ != "" {
			f.First, f.Second = request(sample, v.change), request(sample, v.victim)
		} else if !v.oneWay {
			f.Differ = c.try(sample, v.victim, v.change, other)
			f.First, f.Second = request(sample, v.victim), request(sample, v.change)
		}
		if f.Differ != "" {
			said[v.what] = true
			found = append(found, f)
		}
	}
	return found
}

// try sends two requests to an empty cache. It returns the difference between the response to the
// second request and the response that the second request gets alone. Sometimes only the time that
// has passed causes a difference. So try repeats the comparison. Before and after that, it tests
// again which parts of the response change by themselves.
func (c Config) try(
	sample *http.Request, first, second func(*http.Request), want *alone,
) (differ string) {
	both := func() response {
		h := c.Build()
		send(h, request(sample, first))
		return send(h, request(sample, second))
	}
	if want.differs(both(), c.Ignore) == "" {
		return ""
	}
	want.all = want.all[:perAsk] // responses from other pairs would only cost time
	c.ask(want, sample, second)
	got := both()
	c.ask(want, sample, second)
	return want.differs(got, c.Ignore)
}
