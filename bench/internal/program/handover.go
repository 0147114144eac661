package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// handoverPlan contains the settings of handover.
type handoverPlan struct {
	Contenders int           `json:"contenders"`
	Processes  int           `json:"processes"`
	Handovers  int           `json:"handovers"`
	Hold       time.Duration `json:"holdNanos"`
	Spread     time.Duration `json:"spreadNanos"`
	Growth     []int         `json:"growth"` // processes
	Alone      int           `json:"alone"`
	Repeat     int           `json:"repeat"`
	Lockers    []string      `json:"lockers"`
	Redis      string        `json:"-"`
	JSON       bool          `json:"-"`

	of []Locker
}

// handover runs the scenario of a lock that many contenders want and that goes from one to the
// next.
func handover(ctx context.Context, peers Peers, args []string, stdout, stderr io.Writer) error {
	p, err := parseHandover(peers, args, stderr)
	if err != nil {
		return err
	}
	server, err := openRedis(ctx, p.Redis)
	if err != nil {
		return err
	}
	defer server.close()
	p.Redis = server.addr

	fmt.Fprintf(stderr, "this takes about %v\n", p.lasts().Round(time.Second))
	seen := handoverResults{
		map[string][]handoverTally{}, map[string][]aloneTally{}, map[string][]handoverTally{},
	}
	for n := range p.Repeat {
		fmt.Fprintf(stderr, "repetition %d of %d\n", n+1, p.Repeat)
		if err := p.alone(ctx, server, stderr, n, &seen); err != nil {
			return err
		}
		for _, name := range rotated(p.Lockers, n) {
			if err := p.measure(ctx, server, stderr, name, p.Processes, p.Handovers,
				seen.Handovers); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, name := range p.Lockers {
		for _, processes := range p.Growth { // more and more contenders wait for the same lock
			if err := p.measure(ctx, server, stderr, name, processes, max(p.Handovers/10, 1),
				seen.Growth); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return p.print(stdout, server.about(ctx), seen)
}

// lasts returns about how long all hand-overs take: the mean of the random times for which
// contenders hold the lock, and for which they wait before they want it again. The whole run takes
// longer.
func (p handoverPlan) lasts() time.Duration {
	turns := p.Repeat * (p.Contenders + p.Handovers)
	for _, processes := range p.Growth {
		turns += max(p.Contenders, processes) + max(p.Handovers/10, 1)
	}
	return time.Duration(len(p.Lockers)*turns) * (p.Hold + p.Spread)
}

func parseHandover(peers Peers, args []string, stderr io.Writer) (p handoverPlan, err error) {
	p.of = peers.lockers()
	var names []string
	for _, l := range p.of {
		names = append(names, l.Name)
	}
	flags := newFlags("bench handover", stderr)
	flags.IntVar(&p.Contenders, "contenders", 16,
		"contenders for the lock: one holds it, the others wait")
	flags.IntVar(&p.Processes, "processes", 4, "processes in which the contenders are")
	flags.IntVar(&p.Handovers, "handovers", 500,
		"number of hand-overs in each repetition")
	flags.DurationVar(&p.Hold, "hold", 5*time.Millisecond,
		"shortest time for which a contender holds the lock while all others wait")
	flags.DurationVar(&p.Spread, "spread", pollEvery,
		"longest random time that is added to -hold, and after which the last holder wants the lock again; it keeps locks that poll out of step with the releases")
	growth := flags.String("growth", "2,4,8,16",
		"numbers of processes with which the growth of messages is measured, each with a tenth of the hand-overs; empty: it isn't measured")
	flags.IntVar(&p.Alone, "alone", 500,
		"number of times in each repetition that one contender takes the lock and gives it back while nobody else wants it")
	flags.IntVar(&p.Repeat, "repeat", 1, "repetitions, each with fresh processes and another order of the lockers")
	flags.StringVar(&p.Redis, "redis", "", redisHelp)
	chosenLockers := flags.String("lockers", strings.Join(names, ","),
		"the lockers to compare, of "+strings.Join(names, ", "))
	flags.BoolVar(&p.JSON, "json", false, "print JSON")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	var wrongLocker, wrongGrowth error
	p.Lockers, wrongLocker = chosen("lockers", *chosenLockers, names)
	p.Growth, wrongGrowth = counts("growth", *growth, 2, 256)
	return p, cmp.Or(wrongLocker, wrongGrowth,
		within("contenders", p.Contenders, 2, 10000),
		within("processes", p.Processes, 1, min(p.Contenders, 256)),
		within("handovers", p.Handovers, 1, 1000000),
		within("alone", p.Alone, aloneBatches, 1000000),
		within("hold", p.Hold, 0, time.Minute), within("spread", p.Spread, 0, time.Minute),
		within("repeat", p.Repeat, 1, 1000))
}

// handoverResults are the results of all repetitions, by locker.
type handoverResults struct {
	Handovers map[string][]handoverTally `json:"handovers"`
	Alone     map[string][]aloneTally    `json:"alone"`
	Growth    map[string][]handoverTally `json:"growth"` // in the order of handoverPlan.Growth
}

// handoverTally is the result of one repetition of one locker. Counts are for one hand-over.
type handoverTally struct {
	P50      int64   `json:"p50Nanos"`
	P90      int64   `json:"p90Nanos"`
	P99      int64   `json:"p99Nanos"`
	Max      int64   `json:"maxNanos"`
	Trips    float64 `json:"trips"`
	Commands float64 `json:"commands"`
	Messages float64 `json:"messages"`
}

// aloneTally is the result of one repetition of one locker with a lock that no other contender
// wants. Counts are for one Lock and one Unlock.
type aloneTally struct {
	P50       int64   `json:"p50Nanos"`
	P99       int64   `json:"p99Nanos"`
	Trips     float64 `json:"trips"`
	Commands  float64 `json:"commands"`
	OverFloor float64 `json:"overFloor"` // P50, divided by the floor's P50 in this repetition
}

// measure makes a fleet hand a lock over n times, and adds the result to the other results.
func (p handoverPlan) measure(
	ctx context.Context, s *server, stderr io.Writer, name string, processes, n int,
	to map[string][]handoverTally,
) (err error) {
	contenders := max(p.Contenders, processes)
	fmt.Fprintf(stderr, "  %s: %d hand-overs among %d in %d processes\n", name, n, contenders,
		processes)
	c, err := conduct(ctx, s, name, processes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	took, counted, err := c.handovers(contenders, n, p.Hold, p.Spread)
	if err != nil {
		return err
	}
	to[name] = append(to[name], handoverTally{
		P50: quantile(took, 0.5), P90: quantile(took, 0.9), P99: quantile(took, 0.99),
		Max:   quantile(took, 1),
		Trips: each(counted.Trips, n), Commands: each(counted.commands, n),
		Messages: each(counted.Messages, n),
	})
	return nil
}

// aloneBatches is the number of batches of each locker. The lockers take turns after each batch, so
// that changes in the machine's speed affect all lockers alike.
const aloneBatches = 10

// alone runs a repetition in which no other contender wants the lock, and compares it with the
// floor.
func (p handoverPlan) alone(
	ctx context.Context, s *server, stderr io.Writer, repetition int, seen *handoverResults,
) (err error) {
	names := append([]string{floor.Name}, p.Lockers...)
	fmt.Fprintf(stderr, "  %s: %d times without contention\n", strings.Join(names, ", "), p.Alone)
	by := make(map[string]*conductor)
	defer func() {
		for _, c := range by {
			err = errors.Join(err, c.stop())
		}
	}()
	for _, name := range names {
		if by[name], err = conduct(ctx, s, name, 1); err != nil {
			delete(by, name)
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, _, err := by[name].repeat(10); err != nil { // this dials and loads scripts
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	took := make(map[string][]int64)
	count := make(map[string]traffic)
	for batch := range aloneBatches {
		for _, name := range rotated(names, repetition+batch) {
			one, counted, err := by[name].repeat(p.Alone / aloneBatches)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			took[name] = append(took[name], one...)
			count[name] = count[name].plus(counted)
		}
	}
	for _, name := range names {
		n := len(took[name])
		t := aloneTally{
			P50: quantile(took[name], 0.5), P99: quantile(took[name], 0.99),
			Trips:    each(count[name].Trips, n),
			Commands: each(count[name].commands-count[name].pings, n),
		}
		t.OverFloor = float64(t.P50) / float64(quantile(took[floor.Name], 0.5))
		seen.Alone[name] = append(seen.Alone[name], t)
	}
	return nil
}

// each returns a count divided by n.
func each(count int64, n int) float64 { return float64(count) / float64(n) }

// print writes the results as text or as JSON.
func (p handoverPlan) print(w io.Writer, about about, seen handoverResults) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": seen})
	}
	var s sheet
	s.say("%d contenders in %d processes for one lock, held for %v to %v, %d hand-overs x %s\n%v\n\n",
		p.Contenders, p.Processes, p.Hold, p.Hold+p.Spread, p.Handovers, repetitions(p.Repeat),
		about)
	s.columns("hand-over", "p50 ms", "p90 ms", "p99 ms", "max ms", "trips", "commands", "messages")
	for _, name := range p.Lockers {
		ts := seen.Handovers[name]
		s.row(name, ms(ts, func(t handoverTally) int64 { return t.P50 }),
			ms(ts, func(t handoverTally) int64 { return t.P90 }),
			ms(ts, func(t handoverTally) int64 { return t.P99 }),
			ms(ts, func(t handoverTally) int64 { return t.Max }),
			p.counted(name, figure(ts, "%.1f", func(t handoverTally) float64 { return t.Trips })),
			figure(ts, "%.1f", func(t handoverTally) float64 { return t.Commands }),
			p.counted(name,
				figure(ts, "%.2f", func(t handoverTally) float64 { return t.Messages })))
	}
	s.say(`
p50, p90, p99, max: the time from just before Unlock is called until another contender's Lock has returned, by the machine's
wall clock. The median of the repetitions is shown, and in brackets the least and the most. trips, commands, messages: their
number for one hand-over, including those of contenders that wait meanwhile. Commands in scripts are counted, too. A message
is counted by each process in which it arrives.

One contender calls Lock and Unlock while nobody else wants the lock, %d times x %s

`, p.Alone, repetitions(p.Repeat))
	s.columns("alone", "p50 µs", "p99 µs", "p50 over "+floor.Name, "trips", "commands")
	for _, name := range append([]string{floor.Name}, p.Lockers...) {
		ts := seen.Alone[name]
		s.row(name, figure(ts, "%.0f", func(t aloneTally) float64 { return float64(t.P50) / 1e3 }),
			figure(ts, "%.0f", func(t aloneTally) float64 { return float64(t.P99) / 1e3 }),
			figure(ts, "%.2f", func(t aloneTally) float64 { return t.OverFloor }),
			p.counted(name, figure(ts, "%.1f", func(t aloneTally) float64 { return t.Trips })),
			figure(ts, "%.1f", func(t aloneTally) float64 { return t.Commands }))
	}
	if len(p.Growth) > 0 {
		s.say("\nMessages / commands for one hand-over, by the number of processes in which the contenders are\n\n")
		heads := []any{"processes"}
		for _, n := range p.Growth {
			heads = append(heads, n)
		}
		s.columns(heads...)
		for _, name := range p.Lockers {
			cells := []any{name}
			for _, one := range seen.Growth[name] {
				messages := p.counted(name, fmt.Sprintf("%.2f", one.Messages))
				cells = append(cells, fmt.Sprintf("%s / %.1f", messages, one.Commands))
			}
			s.row(cells...)
		}
	}
	return s.printTo(w)
}

// counted returns the text. For a locker with its own client it returns "-", because processes
// count only the traffic of the benchmark's client.
func (p handoverPlan) counted(locker, text string) string {
	if slices.ContainsFunc(p.of, func(l Locker) bool { return l.Name == locker && l.OwnClient }) {
		return "-"
	}
	return text
}
