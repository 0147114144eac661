package program

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// print writes the results for people, or for machines.
func (p handoverPlan) print(w io.Writer, about about, seen handoverResults) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": seen})
	}
	fmt.Fprintf(w, "%d contenders in %d processes for one lock, held for %v to %v, %d hand-overs x %s\n%v\n\n",
		p.Contenders, p.Processes, p.Hold, p.Hold+p.Spread, p.Handovers, repetitions(p.Repeat), about)

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "hand-over\tp50 ms\tp90 ms\tp99 ms\tmax ms\ttrips\tcommands\tmessages\t")
	for _, name := range p.Lockers {
		ts := seen.Handovers[name]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name,
			figure(ts, "%.2f", func(t handoverTally) float64 { return float64(t.P50) / 1e6 }),
			figure(ts, "%.2f", func(t handoverTally) float64 { return float64(t.P90) / 1e6 }),
			figure(ts, "%.2f", func(t handoverTally) float64 { return float64(t.P99) / 1e6 }),
			figure(ts, "%.2f", func(t handoverTally) float64 { return float64(t.Max) / 1e6 }),
			p.counted(name, figure(ts, "%.1f", func(t handoverTally) float64 { return t.Trips })),
			figure(ts, "%.1f", func(t handoverTally) float64 { return t.Commands }),
			p.counted(name, figure(ts, "%.2f", func(t handoverTally) float64 { return t.Messages })))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nFrom just before Unlock is called to when another contender's Lock has returned, by the wall clock of the one machine.")
	fmt.Fprintln(w, "Median of the repetitions (least to most). trips, commands, messages: for one hand-over, with what those who wait do")
	fmt.Fprintln(w, "meanwhile; commands in scripts are counted too, messages where they arrive.")

	fmt.Fprintf(w, "\nNobody else wants the lock: Lock and Unlock, %d times x %s\n\n", p.Alone, repetitions(p.Repeat))
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "alone\tp50 µs\tp99 µs\tp50 over %s\ttrips\tcommands\t\n", floor.Name)
	for _, name := range append([]string{floor.Name}, p.Lockers...) {
		ts := seen.Alone[name]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", name,
			figure(ts, "%.0f", func(t aloneTally) float64 { return float64(t.P50) / 1e3 }),
			figure(ts, "%.0f", func(t aloneTally) float64 { return float64(t.P99) / 1e3 }),
			figure(ts, "%.2f", func(t aloneTally) float64 { return t.OverFloor }),
			p.counted(name, figure(ts, "%.1f", func(t aloneTally) float64 { return t.Trips })),
			figure(ts, "%.1f", func(t aloneTally) float64 { return t.Commands }))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(p.Growth) == 0 {
		return nil
	}

	fmt.Fprintln(w, "\nMessages for one hand-over / commands, by the number of processes that the contenders are in")
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "processes\t")
	for _, n := range p.Growth {
		fmt.Fprintf(t, "%d\t", n)
	}
	fmt.Fprintln(t)
	for _, name := range p.Lockers {
		fmt.Fprintf(t, "%s\t", name)
		for _, one := range seen.Growth[name] {
			fmt.Fprintf(t, "%s / %.1f\t", p.counted(name, fmt.Sprintf("%.2f", one.Messages)), one.Commands)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// counted is what a process counted of what its own client sends and hears, or "-" for a locker
// with another client.
func (p handoverPlan) counted(locker, text string) string {
	if slices.ContainsFunc(p.of, func(l Locker) bool { return l.Name == locker && l.OwnClient }) {
		return "-"
	}
	return text
}

// figure is the median of the repetitions, and from where to where they go if there is more than
// one.
func figure[T any](ts []T, format string, of func(T) float64) string {
	var values []float64
	for _, t := range ts {
		values = append(values, of(t))
	}
	switch len(values) {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf(format, values[0])
	}
	return fmt.Sprintf(format+" ("+format+"-"+format+")", median(values), slices.Min(values), slices.Max(values))
}
