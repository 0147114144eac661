package program

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
)

// expiryPlan contains the settings of expiry.
type expiryPlan struct {
	steady
	Time time.Duration `json:"timeNanos"`
	html string        // file
	svg  string        // file
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
	last := map[string]sight{}
	tally := func(name string, seen sight) expiryTally {
		last[name] = seen
		return p.tally(seen)
	}
	all, err := measured(ctx, &p.steady, server, course{Time: p.Time}, tally)
	if err != nil {
		return err
	}
	if p.html != "" {
		page := chart.Page{
			Title: "A hot key that expires", Intro: []string{server.about(ctx).String()},
			Sections: []chart.Section{p.section(last)},
		}
		if err := writePage(p.html, page, stderr); err != nil {
			return err
		}
	}
	if p.svg != "" {
		var picture bytes.Buffer
		if err := chart.WritePicture(&picture, p.underWay(last)); err != nil {
			return err
		}
		if err := os.WriteFile(p.svg, picture.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return p.print(stdout, server.about(ctx), all)
}

func parseExpiry(args []string, stderr io.Writer) (p expiryPlan, err error) {
	flags := newFlags("bench expiry", stderr)
	p.flags(flags, "noop", "none", "get", "singleflight", "xfetch", "cacheguard", "cacheguard-swr",
		"cacheguard-early", "cacheguard-early+swr")
	flags.DurationVar(&p.Time, "time", 20*time.Second, "how long each protection is measured")
	flags.StringVar(&p.html, "html", "",
		"`file` to which a page with charts of the last repetition is written")
	flags.StringVar(&p.svg, "svg", "", "`file` to which a picture of the loads of the last repetition is written")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	if err := within("time", p.Time, 100*time.Millisecond, time.Hour); err != nil {
		return p, err
	}
	return p, p.validate()
}

// expiryTally is the result of one repetition of one protection.
type expiryTally struct {
	steadyTally
	Loads     int     `json:"loads"`
	Lifetimes int     `json:"lifetimes"` // the number of versions that the loads in Loads replaced
	Most      int     `json:"most"`      // the most loads that replaced the same version
	PerTTL    float64 `json:"perTTL"`    // the loads in the time of one TTL
	// The longest time for which an answer's TTL had been over when its request arrived.
	Oldest int64 `json:"oldestNanos"`
}

func (p expiryPlan) tally(seen sight) (t expiryTally) {
	t.steadyTally = seen.tally(period{seen.Start, seen.End}, func(q request) {
		if q.Kind != failed {
			t.Oldest = max(t.Oldest, q.Due-int64(q.Made)-int64(p.TTL))
		}
	})
	for _, loads := range lifetimes(seen.Loads, period{seen.Start, seen.End}, p.TTL) {
		t.Loads += loads
		t.Lifetimes++
		t.Most = max(t.Most, loads)
	}
	if t.Loads == 0 { // nothing expires
		t.Oldest = 0
	}
	t.PerTTL = float64(t.Loads) * float64(p.TTL) / float64(p.Time)
	return t
}

func (p expiryPlan) print(w io.Writer, about about, all map[string][]expiryTally) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": all})
	}
	s := p.heading(p.Time.String(), about)
	s.columns("protection", "requests", "errors", "loads", "per expiry", "most", "per TTL", "stale",
		"oldest ms",
		"p50 ms", "p99 ms", "p99.9 ms", "max ms", "late", "late p99.9 ms")
	for _, name := range p.Protections {
		ts := all[name]
		var perTTL float64
		for _, one := range ts {
			perTTL += one.PerTTL / float64(len(ts))
		}
		loads, oldest := total(ts, func(t expiryTally) int { return t.Loads }), "-"
		if loads > 0 { // without loads nothing expires
			oldest = fmt.Sprintf("%.1f",
				float64(most(ts, func(t expiryTally) int { return int(t.Oldest) }))/1e6)
		}
		s.row(name, total(ts, func(t expiryTally) int { return t.Requests }),
			total(ts, func(t expiryTally) int { return t.Errors }),
			loads, ratio(loads, total(ts, func(t expiryTally) int { return t.Lifetimes })),
			most(ts, func(t expiryTally) int { return t.Most }), fmt.Sprintf("%.2f", perTTL),
			total(ts, func(t expiryTally) int { return t.Stale }), oldest,
			ms(ts, func(t expiryTally) int64 { return t.P50 }),
			ms(ts, func(t expiryTally) int64 { return t.P99 }),
			ms(ts, func(t expiryTally) int64 { return t.P999 }),
			ms(ts, func(t expiryTally) int64 { return t.Max }),
			total(ts, func(t expiryTally) int { return t.Late }),
			ms(ts, func(t expiryTally) int64 { return t.LateP999 }))
	}
	s.say(`
per expiry: the number of loads, divided by the number of versions that they replaced. A version is replaced after its expiry or by
an early refresh. most: the largest number of loads that replaced one version. per TTL: the number of loads in the time of one TTL.
stale: the number of answers that the protection reported as stale. oldest: the longest time for which the TTL of an answer had
been over when its request arrived. p50, p99, p99.9, max: the latency of all requests of all processes, counted from the time at
which a request was due. It is the median of the repetitions, with the least and the most in brackets.
%s
noop is the generator alone. none is GET, load, SET. get is a plain GET of a key that doesn't expire. xfetch is early refresh as in
cacheguard-early, with a flight in each process and without a lease. swr means StaleWhileRevalidate. early means EarlyRefresh 1.
`, noise)
	return s.printTo(w)
}

// lifetimes counts, for each version, the loads that replaced it and began in a period. If the
// caller of a load already had a version, the load replaces this version. Otherwise it replaces the
// newest version whose TTL was over by then. So a second load right after the first is counted as
// one too many.
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

// slice is the time that one point of the timeline covers.
const slice = 100 * time.Millisecond

// timeline returns the longest time of the requests that arrived in each slice of time, and the
// times at which loads began.
func timeline(name string, seen sight) (waits, loads chart.Series) {
	n := int((seen.End - seen.Start + int64(slice) - 1) / int64(slice))
	longest, begun := make([]int64, n), make([]int, n)
	for q := range seen.requests(period{seen.Start, seen.End}) {
		i := (q.Due - seen.Start) / int64(slice)
		longest[i] = max(longest[i], q.Latency)
	}
	for _, l := range seen.Loads {
		if l.Begin >= seen.Start && l.Begin < seen.End {
			begun[(l.Begin-seen.Start)/int64(slice)]++
		}
	}
	waits, loads = chart.Series{Name: name}, chart.Series{Name: name}
	total := 0
	for i := range n {
		x := (float64(i) + 0.5) * slice.Seconds()
		waits.Points = append(waits.Points, chart.Point{X: x, Y: float64(longest[i]) / 1e6})
		total += begun[i]
		loads.Points = append(loads.Points, chart.Point{X: x, Y: float64(total)})
	}
	return waits, loads
}

// underWay draws the number of loads that run at the origin at the same time. It takes ten samples
// in the time of a load, but not more than one per millisecond.
func (p expiryPlan) underWay(seen map[string]sight) chart.Lines {
	step := max(p.Load/10, time.Millisecond)
	picture := chart.Lines{
		Title: "loads under way at the origin over time", X: "seconds", Y: "loads at the same time",
	}
	for _, name := range p.Protections {
		s := seen[name]
		line := chart.Series{Name: name}
		for at := s.Start; at < s.End; at += int64(step) {
			n := 0
			for _, l := range s.Loads {
				if l.Begin <= at && (l.End == 0 || at < l.End) {
					n++
				}
			}
			line.Points = append(line.Points,
				chart.Point{X: time.Duration(at - s.Start).Seconds(), Y: float64(n)})
		}
		picture.Series = append(picture.Series, line)
	}
	return picture
}

// section returns the page's section about the expiry of a hot key. It shows one repetition of each
// protection.
func (p expiryPlan) section(seen map[string]sight) chart.Section {
	waits := chart.Lines{Title: "the longest wait over time", X: "seconds", Y: "ms", LogY: true}
	loads := chart.Lines{Title: "loads over time", X: "seconds", Y: "loads"}
	for _, name := range p.Protections {
		if s, ok := seen[name]; ok {
			w, l := timeline(name, s)
			waits.Series, loads.Series = append(waits.Series, w), append(loads.Series, l)
		}
	}
	return chart.Section{
		Title: "A hot key that expires again and again",
		Text: []string{fmt.Sprintf(
			"%d processes, %d requests a second in each whether or not earlier ones have been answered, a time to live of %v, a load of %v. Each point is the longest that any request took which was to arrive in that tenth of a second.",
			p.Processes, p.Rate, p.TTL, p.Load)},
		Figures: []chart.Figure{
			{
				Caption: "The longest wait of each tenth of a second, from when a request was to arrive.",
				Chart:   waits,
			},
			{Caption: "Loads of the origin since the beginning.", Chart: loads},
		},
	}
}
