package program

import (
	"context"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
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
	p.heading(w, p.Time.String(), about)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "protection\trequests\terrors\tloads\tper expiry\tmost\tper TTL\tstale\toldest ms\tp50 ms\tp99 ms\tp99.9 ms\tmax ms\tlate\tlate p99.9 ms\t")
	for _, name := range p.Protections {
		ts := all[name]
		var sum expiryTally
		for _, one := range ts {
			sum.Requests += one.Requests
			sum.Errors += one.Errors
			sum.Loads += one.Loads
			sum.Lifetimes += one.Lifetimes
			sum.Most = max(sum.Most, one.Most)
			sum.PerTTL += one.PerTTL / float64(len(ts))
			sum.Stale += one.Stale
			sum.Oldest = max(sum.Oldest, one.Oldest)
			sum.Late += one.Late
		}
		oldest := "-"
		if sum.Loads > 0 { // without loads nothing expires
			oldest = fmt.Sprintf("%.1f", float64(sum.Oldest)/1e6)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%d\t%.2f\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t\n", name, sum.Requests, sum.Errors, sum.Loads,
			ratio(sum.Loads, sum.Lifetimes), sum.Most, sum.PerTTL, sum.Stale, oldest,
			ms(ts, func(t expiryTally) int64 { return t.P50 }), ms(ts, func(t expiryTally) int64 { return t.P99 }),
			ms(ts, func(t expiryTally) int64 { return t.P999 }), ms(ts, func(t expiryTally) int64 { return t.Max }), sum.Late,
			ms(ts, func(t expiryTally) int64 { return t.LateP999 }))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nper expiry: loads divided by the versions they replaced, which is TTL expiries, or refreshes where those come first. most: of one version.")
	fmt.Fprintln(w, "stale: answers, by the protection's own word. oldest: the longest that an answer's TTL had been over when its request arrived.")
	fmt.Fprintln(w, "per TTL: loads in the time of one TTL. Latency is counted from when a request was to arrive, percentiles are of all")
	fmt.Fprintln(w, "requests of all processes, median of the repetitions (least to most).")
	noise(w)
	_, err := fmt.Fprintln(w, "noop: the generator alone. get: a plain GET of a key that doesn't expire, the floor. xfetch: early refresh, as cacheguard-early has it,\nand a flight in each process, without a lease. swr: StaleWhileRevalidate. early: EarlyRefresh 1.")
	return err
}

// ratio is a over b.
func ratio(a, b int) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}
