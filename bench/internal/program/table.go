package program

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// print writes the results for people, or for machines.
func (p plan) print(ctx context.Context, w io.Writer, server *server, all map[string][]tally) error {
	about := server.about(ctx)
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": all})
	}
	fmt.Fprintf(w, "%d processes x %d callers on one cold key, load %v, value %d bytes, %d rounds x %s\n",
		p.Processes, p.Callers, p.Load, p.Size, p.Rounds, repetitions(p.Repeat))
	fmt.Fprintf(w, "%v\n\n", about)

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "protection\tloads\terrors\tp50 ms\tp99 ms\tfirst load ms\ttail ms\ttrips\tcommands\t")
	for _, name := range p.Protections {
		ts := all[name]
		errs := 0
		var loads []int
		var trips int64
		var commands []int64
		for _, one := range ts {
			errs += one.Errors
			loads = append(loads, one.Loads...)
			trips = max(trips, one.Trips)
			commands = append(commands, one.Commands...)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t\n", name, span(loads), errs,
			ms(ts, func(t tally) int64 { return t.P50 }), ms(ts, func(t tally) int64 { return t.P99 }),
			ms(ts, func(t tally) int64 { return t.First }), ms(ts, func(t tally) int64 { return t.Tail }),
			trips, slices.Max(commands))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nloads: of one round, least to most. p50, p99: latency minus load, median of the repetitions (least to most).")
	fmt.Fprintln(w, "first load: from the start to the first load. tail: from the end of that load to the 99th percentile.")
	fmt.Fprintln(w, "trips: round trips to Redis, most of one process. commands: of one round, all processes, those in scripts counted, most.")
	return p.ratios(w, all)
}

// ratios compares with the floor that needs no Redis lease.
func (p plan) ratios(w io.Writer, all map[string][]tally) error {
	guarded, floor := all["cacheguard"], all["flight"]
	if guarded == nil || floor == nil {
		return nil
	}
	p99 := func(t tally) int64 { return t.P99 }
	a, b := middle(guarded, p99), middle(floor, p99)
	_, err := fmt.Fprintf(w, "\np99 of cacheguard over flight without the lease: %.2f times, %+.2f ms\n",
		float64(a)/float64(b), float64(a-b)/1e6)
	return err
}

func middle[T any](ts []T, of func(T) int64) int64 {
	values := make([]int64, len(ts))
	for i, t := range ts {
		values[i] = of(t)
	}
	return median(values)
}

func ms[T any](ts []T, of func(T) int64) string {
	values := make([]int64, len(ts))
	for i, t := range ts {
		values[i] = of(t)
	}
	slices.Sort(values)
	if len(values) == 1 {
		return fmt.Sprintf("%.2f", float64(values[0])/1e6)
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", float64(middle(ts, of))/1e6, float64(values[0])/1e6, float64(values[len(values)-1])/1e6)
}

func span(loads []int) string {
	least, most := slices.Min(loads), slices.Max(loads)
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d-%d", least, most)
}

func repetitions(n int) string {
	if n == 1 {
		return "1 repetition"
	}
	return fmt.Sprintf("%d repetitions", n)
}
