package program

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"
)

// outagePlan contains the settings of outage.
type outagePlan struct {
	steady
	Before  time.Duration `json:"beforeNanos"`
	Outage  time.Duration `json:"outageNanos"`
	After   time.Duration `json:"afterNanos"`
	Backoff time.Duration `json:"backoffNanos"`
}

const (
	shortestBackoff = 0.8 // times Options.Backoff, which is shortened at random by at most a fifth
	longestBackoff  = 3   // times Options.Backoff, which grows with the failures in a row
)

// outage runs the scenario of an origin that fails for a while under steady load.
func outage(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parseOutage(args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, p.Redis)
	if err != nil {
		return err
	}
	defer server.close()
	c := course{
		Time: p.Before + p.Outage + p.After, Backoff: p.Backoff, OutageAfter: p.Before,
		Outlast: p.Outage,
	}
	tally := func(_ string, seen sight) outageTally { return p.tally(seen) }
	all, err := measured(ctx, &p.steady, server, c, tally)
	if err != nil {
		return err
	}
	return p.print(stdout, server.about(ctx), all)
}

func parseOutage(args []string, stderr io.Writer) (p outagePlan, err error) {
	flags := newFlags("bench outage", stderr)
	p.flags(flags, "cacheguard-stale", "cacheguard-stale-if-error", "cacheguard", "singleflight")
	flags.DurationVar(&p.Before, "before", 5*time.Second, "how long the origin works at first")
	flags.DurationVar(&p.Outage, "outage", 30*time.Second, "how long the origin fails after that")
	flags.DurationVar(&p.After, "after", 0,
		"how long the origin works after its failure; default: three times -backoff, plus two times the sum of -ttl and -load")
	flags.DurationVar(&p.Backoff, "backoff", 5*time.Second, "value of Options.Backoff")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "after" })
	if !given {
		p.After = longestBackoff*p.Backoff + 2*(p.TTL+p.Load)
	}
	return p, cmp.Or(p.validate(), within("before", p.Before, 0, time.Hour),
		within("outage", p.Outage, time.Millisecond, time.Hour),
		within("after", p.After, 0, 4*time.Hour),
		within("backoff", p.Backoff, 10*time.Millisecond, time.Hour))
}

// outageTally is the result of one repetition of one protection, for the requests that arrived
// during the outage.
type outageTally struct {
	steadyTally
	Attempts int `json:"attempts"` // loads that began during the outage
	// The most attempts in any period as long as the shortest back-off.
	MostPerBackoff int   `json:"mostPerBackoff"`
	ErrorP50       int64 `json:"errorP50Nanos"` // of requests that got an error
	ErrorP99       int64 `json:"errorP99Nanos"`
	// Errors that came in less than a tenth of the time of a load.
	AtOnce int `json:"atOnce"`
	// A fresh value was returned after the origin worked again.
	Recovered bool `json:"recovered"`
	// The time from the origin's return to the first fresh value.
	FirstFresh int64 `json:"firstFreshNanos"`
	// The time from the origin's return to the last answer that was an error or an older value.
	LastBad int64 `json:"lastBadNanos"`
}

func (p outagePlan) tally(seen sight) (t outageTally) {
	var errors []int64
	t.steadyTally = seen.tally(seen.Outage, func(q request) {
		if q.Kind == failed {
			errors = append(errors, q.Latency)
			if q.Latency < int64(p.Load)/10 {
				t.AtOnce++
			}
		}
	})
	t.ErrorP50, t.ErrorP99 = quantile(errors, 0.5), quantile(errors, 0.99)

	var attempts []int64
	for _, l := range seen.Loads {
		if seen.Outage.has(l.Begin) {
			attempts = append(attempts, l.Begin)
		}
	}
	t.Attempts = len(attempts)
	t.MostPerBackoff = mostWithin(attempts, time.Duration(shortestBackoff*float64(p.Backoff)))

	back := seen.Outage.To
	for q := range seen.requests(period{seen.Start, seen.End}) {
		after := q.Due + q.Latency - back
		switch {
		case after < 0:
		case q.Kind == failed || int64(q.Made) < back:
			t.LastBad = max(t.LastBad, after)
		case !t.Recovered || after < t.FirstFresh:
			t.FirstFresh, t.Recovered = after, true
		}
	}
	return t
}

func (p outagePlan) print(w io.Writer, about about, all map[string][]outageTally) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": all})
	}
	s := p.heading(fmt.Sprintf("back-off %v, %v of service, %v of outage, %v of service", p.Backoff,
		p.Before, p.Outage, p.After), about)
	s.columns("protection", "requests", "errors", "stale", "attempts", "per back-off", "p50 ms",
		"p99 ms", "p99.9 ms", "max ms",
		"error p50 ms", "error p99 ms", "at once", "fresh after ms", "bad until ms", "late",
		"late p99.9 ms")
	for _, name := range p.Protections {
		ts := all[name]
		errors := total(ts, func(t outageTally) int { return t.Errors })
		errorP50, errorP99, atOnce, firstFresh := "-", "-", "-", "never"
		if errors > 0 {
			errorP50 = ms(ts, func(t outageTally) int64 { return t.ErrorP50 })
			errorP99 = ms(ts, func(t outageTally) int64 { return t.ErrorP99 })
			atOnce = fmt.Sprintf("%.1f%%",
				100*float64(total(ts, func(t outageTally) int { return t.AtOnce }))/float64(errors))
		}
		if !slices.ContainsFunc(ts, func(t outageTally) bool { return !t.Recovered }) {
			firstFresh = ms(ts, func(t outageTally) int64 { return t.FirstFresh })
		}
		s.row(name, total(ts, func(t outageTally) int { return t.Requests }), errors,
			total(ts, func(t outageTally) int { return t.Stale }),
			total(ts, func(t outageTally) int { return t.Attempts }),
			most(ts, func(t outageTally) int { return t.MostPerBackoff }),
			ms(ts, func(t outageTally) int64 { return t.P50 }),
			ms(ts, func(t outageTally) int64 { return t.P99 }),
			ms(ts, func(t outageTally) int64 { return t.P999 }),
			ms(ts, func(t outageTally) int64 { return t.Max }),
			errorP50, errorP99, atOnce, firstFresh,
			ms(ts, func(t outageTally) int64 { return t.LastBad }),
			total(ts, func(t outageTally) int { return t.Late }),
			ms(ts, func(t outageTally) int64 { return t.LateP999 }))
	}
	s.say(`
requests, errors, stale, p50, p99, p99.9, max: they count only requests that arrived during the outage. In an outage a load fails when
its time is over. attempts: the number of loads that all processes began during the outage. per back-off: the largest number of
attempts within %v, the shortest back-off, which is a fifth shorter than -backoff. The back-off grows with the failures, up to %v.
If there is no value to serve, loads wait for ErrorTTL (1s) instead. at once: the share of errors that took less than a tenth of
the time of a load. A caller that asks during a load waits for the end of the load. fresh after: the time from the origin's return
to the first answer with a value made since. bad until: the time from the origin's return to the last error or older answer.
%s
cacheguard-stale has StaleIfError and StaleWhileRevalidate. cacheguard-stale-if-error has only StaleIfError.
`, time.Duration(shortestBackoff*float64(p.Backoff)), longestBackoff*p.Backoff, noise)
	return s.printTo(w)
}

// mostWithin returns the largest number of these moments in any period of this length. The end of a
// period isn't part of it.
func mostWithin(moments []int64, length time.Duration) (most int) {
	sorted := slices.Sorted(slices.Values(moments))
	first := 0
	for i, at := range sorted {
		for at-sorted[first] >= int64(length) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
