package program

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// handoverPlan is what handover measures.
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

// handover runs the scenario of a lock that goes from one to the next of many who want it.
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
	var seen handoverResults
	for n := range p.Repeat {
		fmt.Fprintf(stderr, "repetition %d of %d\n", n+1, p.Repeat)
		if err := p.alone(ctx, server, stderr, n, &seen); err != nil {
			return err
		}
		if err := p.contended(ctx, server, stderr, n, &seen); err != nil {
			return err
		}
	}
	if err := p.grow(ctx, server, stderr, &seen); err != nil {
		return err
	}
	return p.print(stdout, server.about(ctx), seen)
}

// lasts is how long all of it takes at least: the lock is held, and wanted again, for times that
// are drawn on purpose.
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
	flags := flag.NewFlagSet("bench handover", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.Contenders, "contenders", 16, "who wants the lock: one holds it, the others wait")
	flags.IntVar(&p.Processes, "processes", 4, "replicas that they are in, each a process")
	flags.IntVar(&p.Handovers, "handovers", 500, "how often the lock changes hands in each repetition")
	flags.DurationVar(&p.Hold, "hold", 5*time.Millisecond, "how long the lock is held at least, with all others waiting")
	flags.DurationVar(&p.Spread, "spread", pollEvery, "how much longer, at random, and after how long, at random, the last holder wants it again: a lock that polls must not be in step with its releases")
	growth := flags.String("growth", "2,4,8,16", "processes for the growth of messages, each with a tenth of the hand-overs; empty: not at all")
	flags.IntVar(&p.Alone, "alone", 500, "how often the lock is had and given back in each repetition while nobody else wants it")
	flags.IntVar(&p.Repeat, "repeat", 1, "repetitions, each with fresh processes and another order")
	flags.StringVar(&p.Redis, "redis", "", redisHelp)
	chosenLockers := flags.String("lockers", strings.Join(names, ","), "which to compare, of "+strings.Join(names, ", "))
	flags.BoolVar(&p.JSON, "json", false, "print JSON")
	if err := parse(flags, args); err != nil {
		return p, err
	}
	var wrongLocker, wrongGrowth error
	p.Lockers, wrongLocker = chosen("lockers", *chosenLockers, names)
	p.Growth, wrongGrowth = counts("growth", *growth, 2, 256)
	return p, cmp.Or(wrongLocker, wrongGrowth,
		within("contenders", p.Contenders, 2, 10000), within("processes", p.Processes, 1, min(p.Contenders, 256)),
		within("handovers", p.Handovers, 1, 1000000), within("alone", p.Alone, aloneBatches, 1000000),
		within("hold", p.Hold, 0, time.Minute), within("spread", p.Spread, 0, time.Minute), within("repeat", p.Repeat, 1, 1000))
}

// handoverResults are those of all repetitions, by locker.
type handoverResults struct {
	Handovers map[string][]handoverTally `json:"handovers"`
	Alone     map[string][]aloneTally    `json:"alone"`
	Growth    map[string][]handoverTally `json:"growth"` // in the order of handoverPlan.Growth
}

// handoverTally is what one repetition of one locker showed. Counts are for one hand-over.
type handoverTally struct {
	P50      int64   `json:"p50Nanos"`
	P90      int64   `json:"p90Nanos"`
	P99      int64   `json:"p99Nanos"`
	Max      int64   `json:"maxNanos"`
	Trips    float64 `json:"trips"`
	Commands float64 `json:"commands"`
	Messages float64 `json:"messages"`
}

// aloneTally is what one repetition of one locker showed that nobody else wanted, for locking and
// unlocking once.
type aloneTally struct {
	P50       int64   `json:"p50Nanos"`
	P99       int64   `json:"p99Nanos"`
	Trips     float64 `json:"trips"`
	Commands  float64 `json:"commands"`
	OverFloor float64 `json:"overFloor"` // P50, against that of the floor in this repetition
}

// contended runs a repetition.
func (p handoverPlan) contended(ctx context.Context, s *server, stderr io.Writer, repetition int, seen *handoverResults) error {
	if seen.Handovers == nil {
		seen.Handovers = make(map[string][]handoverTally)
	}
	for _, name := range rotated(p.Lockers, repetition) {
		fmt.Fprintf(stderr, "  %s: %d hand-overs among %d in %d processes\n", name, p.Handovers, p.Contenders, p.Processes)
		t, err := p.measure(ctx, s, name, p.Processes, p.Handovers)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		seen.Handovers[name] = append(seen.Handovers[name], t)
	}
	return nil
}

// grow has ever more processes wait for the same lock.
func (p handoverPlan) grow(ctx context.Context, s *server, stderr io.Writer, seen *handoverResults) error {
	if seen.Growth == nil {
		seen.Growth = make(map[string][]handoverTally)
	}
	for _, name := range p.Lockers {
		for _, processes := range p.Growth {
			n := max(p.Handovers/10, 1)
			fmt.Fprintf(stderr, "  %s: %d hand-overs in %d processes\n", name, n, processes)
			t, err := p.measure(ctx, s, name, processes, n)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			seen.Growth[name] = append(seen.Growth[name], t)
		}
	}
	return nil
}

// measure has a fleet hand a lock over n times.
func (p handoverPlan) measure(ctx context.Context, s *server, name string, processes, n int) (t handoverTally, err error) {
	c, err := conduct(ctx, s, name, processes)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	took, counted, err := c.handovers(max(p.Contenders, processes), n, p.Hold, p.Spread)
	if err != nil {
		return t, err
	}
	t.P50, t.P90, t.P99, t.Max = quantile(took, 0.5), quantile(took, 0.9), quantile(took, 0.99), quantile(took, 1)
	t.Trips, t.Commands, t.Messages = each(counted.trips, n), each(counted.commands, n), each(counted.messages, n)
	return t, nil
}

const aloneBatches = 10 // so that all lockers have the same seconds of the machine

// alone runs a repetition in which nobody else wants the lock, with the floor beside.
func (p handoverPlan) alone(ctx context.Context, s *server, stderr io.Writer, repetition int, seen *handoverResults) (err error) {
	if seen.Alone == nil {
		seen.Alone = make(map[string][]aloneTally)
	}
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
		if _, _, err := by[name].repeat(10); err != nil { // dials and loads scripts
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	took := make(map[string][]int64)
	count := make(map[string]handoverCount)
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
			Trips: each(count[name].trips, n), Commands: each(count[name].commands-count[name].pings, n),
		}
		t.OverFloor = float64(t.P50) / float64(quantile(took[floor.Name], 0.5))
		seen.Alone[name] = append(seen.Alone[name], t)
	}
	return nil
}

// rotated begins with another one each time.
func rotated(names []string, by int) []string {
	by %= len(names)
	return slices.Concat(names[by:], names[:by])
}

// each is a count for one of n.
func each(count int64, n int) float64 { return float64(count) / float64(n) }
