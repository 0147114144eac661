package program

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
)

// expiryPlan is what expiry measures.
type expiryPlan struct {
	steady
	Time time.Duration `json:"timeNanos"`
	html string        // file
}

// expiry runs the scenario of a hot key that expires again and again under steady load.
func expiry(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parseExpiry(args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, p.Redis)
	if err != nil {
		return err
	}
	defer server.close()
	p.server = server

	all, last := make(map[string][]expiryTally), make(map[string]sight)
	if err := p.each(ctx, course{Time: p.Time}, func(name string, seen sight) {
		all[name] = append(all[name], p.tally(seen))
		last[name] = seen
	}); err != nil {
		return err
	}
	if p.html != "" {
		page := chart.Page{Title: "A hot key that expires", Intro: []string{server.about(ctx).String()}, Sections: []chart.Section{p.section(last)}}
		if err := writePage(p.html, page); err != nil {
			return err
		}
		told(stderr, p.html)
	}
	return p.print(stdout, server.about(ctx), all)
}

func parseExpiry(args []string, stderr io.Writer) (p expiryPlan, err error) {
	flags := flag.NewFlagSet("bench expiry", flag.ContinueOnError)
	flags.SetOutput(stderr)
	p.flags(flags, "noop", "get", "singleflight", "xfetch", "cacheguard", "cacheguard-swr", "cacheguard-early", "cacheguard-early+swr")
	flags.DurationVar(&p.Time, "time", 20*time.Second, "how long each protection is measured")
	flags.StringVar(&p.html, "html", "", "`file` to write a page with charts to, of the last repetition")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	if err := writable(p.html); err != nil {
		return p, err
	}
	if err := within("time", p.Time, 100*time.Millisecond, time.Hour); err != nil {
		return p, err
	}
	return p, p.validate()
}

// expiryTally is what one repetition of one protection showed.
type expiryTally struct {
	Requests  int     `json:"requests"`
	Errors    int     `json:"errors"`
	Error     string  `json:"error,omitempty"` // one of them
	Loads     int     `json:"loads"`
	Lifetimes int     `json:"lifetimes"`   // versions that these loads replaced
	Most      int     `json:"most"`        // loads that replaced the same one
	PerTTL    float64 `json:"perTTL"`      // loads
	Stale     int     `json:"stale"`       // answers, by the protection's own word
	Oldest    int64   `json:"oldestNanos"` // how long any answer's TTL had been over when its request arrived
	P50       int64   `json:"p50Nanos"`
	P99       int64   `json:"p99Nanos"`
	P999      int64   `json:"p999Nanos"`
	Max       int64   `json:"maxNanos"`
	Late      int     `json:"late"`          // arrivals issued too late
	LateP999  int64   `json:"lateP999Nanos"` // of all arrivals
}

func (p expiryPlan) tally(seen sight) expiryTally {
	t := expiryTally{Error: seen.error()}
	t.Late, t.LateP999 = seen.late()
	var latencies []int64
	for q := range seen.requests(period{seen.Start, seen.End}) {
		t.Requests++
		latencies = append(latencies, q.Latency)
		switch q.Kind {
		case failed:
			t.Errors++
			continue
		case stale:
			t.Stale++
		}
		t.Oldest = max(t.Oldest, q.Due-int64(q.Made)-int64(p.TTL))
	}
	for _, loads := range lifetimes(seen.Loads, period{seen.Start, seen.End}, p.TTL) {
		t.Loads += loads
		t.Lifetimes++
		t.Most = max(t.Most, loads)
	}
	if t.Loads == 0 { // nothing expires
		t.Oldest = 0
	}
	t.PerTTL = float64(t.Loads) * float64(p.TTL) / float64(p.Time)
	t.P50, t.P99, t.P999, t.Max = quantile(latencies, 0.5), quantile(latencies, 0.99), quantile(latencies, 0.999), quantile(latencies, 1)
	return t
}

func (p expiryPlan) print(w io.Writer, about about, all map[string][]expiryTally) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": all})
	}
	s := p.heading(p.Time.String(), about)
	s.columns("protection", "requests", "errors", "loads", "per expiry", "most", "per TTL", "stale", "oldest ms",
		"p50 ms", "p99 ms", "p99.9 ms", "max ms", "late", "late p99.9 ms")
	for _, name := range p.Protections {
		ts := all[name]
		var perTTL float64
		for _, one := range ts {
			perTTL += one.PerTTL / float64(len(ts))
		}
		loads, oldest := total(ts, func(t expiryTally) int { return t.Loads }), "-"
		if loads > 0 { // without loads nothing expires
			oldest = fmt.Sprintf("%.1f", float64(most(ts, func(t expiryTally) int { return int(t.Oldest) }))/1e6)
		}
		s.row(name, total(ts, func(t expiryTally) int { return t.Requests }), total(ts, func(t expiryTally) int { return t.Errors }),
			loads, ratio(loads, total(ts, func(t expiryTally) int { return t.Lifetimes })),
			most(ts, func(t expiryTally) int { return t.Most }), fmt.Sprintf("%.2f", perTTL),
			total(ts, func(t expiryTally) int { return t.Stale }), oldest,
			ms(ts, func(t expiryTally) int64 { return t.P50 }), ms(ts, func(t expiryTally) int64 { return t.P99 }),
			ms(ts, func(t expiryTally) int64 { return t.P999 }), ms(ts, func(t expiryTally) int64 { return t.Max }),
			total(ts, func(t expiryTally) int { return t.Late }), ms(ts, func(t expiryTally) int64 { return t.LateP999 }))
	}
	s.say(`
per expiry: loads divided by the versions they replaced, which is TTL expiries, or refreshes where those come first. most: of one version.
stale: answers, by the protection's own word. oldest: the longest that an answer's TTL had been over when its request arrived.
per TTL: loads in the time of one TTL. Latency is counted from when a request was to arrive, percentiles are of all
requests of all processes, median of the repetitions (least to most).
%s
noop: the generator alone. get: a plain GET of a key that doesn't expire, the floor. xfetch: early refresh, as cacheguard-early has it,
and a flight in each process, without a lease. swr: StaleWhileRevalidate. early: EarlyRefresh 1.
`, noise)
	return s.printTo(w)
}

// lifetimes counts the loads that replaced each version, of those that began in a time. One that
// was asked for with a version in hand replaces that. One that was asked for with nothing replaces
// the newest version whose TTL was over by then, so that a second load which comes right after the
// first counts as one too many.
func lifetimes(loads []load, in period, ttl time.Duration) map[version]int {
	const slack = 0.9 // a value's TTL is counted in milliseconds and on Redis' clock
	expired := func(at int64) (newest version) {
		for _, l := range loads {
			if l.Made > newest && int64(l.Made)+int64(slack*float64(ttl)) <= at {
				newest = l.Made
			}
		}
		return newest
	}
	count := make(map[version]int)
	for _, l := range loads {
		switch {
		case !in.has(l.Begin):
		case l.Replaces != 0:
			count[l.Replaces]++
		default:
			count[expired(l.Begin)]++
		}
	}
	return count
}
