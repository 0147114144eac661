package program

import (
	"fmt"
	"io"
	"slices"
)

// print writes the results for people, or for machines.
func (p handoverPlan) print(w io.Writer, about about, seen handoverResults) error {
	if p.JSON {
		return printJSON(w, map[string]any{"about": about, "plan": p, "results": seen})
	}
	var s sheet
	s.say("%d contenders in %d processes for one lock, held for %v to %v, %d hand-overs x %s\n%v\n\n",
		p.Contenders, p.Processes, p.Hold, p.Hold+p.Spread, p.Handovers, repetitions(p.Repeat), about)
	s.columns("hand-over", "p50 ms", "p90 ms", "p99 ms", "max ms", "trips", "commands", "messages")
	for _, name := range p.Lockers {
		ts := seen.Handovers[name]
		s.row(name, ms(ts, func(t handoverTally) int64 { return t.P50 }), ms(ts, func(t handoverTally) int64 { return t.P90 }),
			ms(ts, func(t handoverTally) int64 { return t.P99 }), ms(ts, func(t handoverTally) int64 { return t.Max }),
			p.counted(name, figure(ts, "%.1f", func(t handoverTally) float64 { return t.Trips })),
			figure(ts, "%.1f", func(t handoverTally) float64 { return t.Commands }),
			p.counted(name, figure(ts, "%.2f", func(t handoverTally) float64 { return t.Messages })))
	}
	s.say(`
From just before Unlock is called to when another contender's Lock has returned, by the wall clock of the one machine.
Median of the repetitions (least to most). trips, commands, messages: for one hand-over, with what those who wait do
meanwhile; commands in scripts are counted too, messages where they arrive.

Nobody else wants the lock: Lock and Unlock, %d times x %s

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
		s.say("\nMessages for one hand-over / commands, by the number of processes that the contenders are in\n\n")
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

// counted is what a process counted of what its own client sends and hears, or "-" for a locker
// with another client.
func (p handoverPlan) counted(locker, text string) string {
	if slices.ContainsFunc(p.of, func(l Locker) bool { return l.Name == locker && l.OwnClient }) {
		return "-"
	}
	return text
}
