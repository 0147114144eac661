package program

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// writable checks before a run that the file isn't a directory, and that its directory exists. So
// these errors don't come only after the run.
func writable(html string) error {
	if html == "" {
		return nil
	}
	if info, err := os.Stat(html); err == nil && info.IsDir() {
		return usageError(fmt.Sprintf("-html %s is a directory", html))
	}
	if _, err := os.Stat(filepath.Dir(html)); err != nil {
		return usageError(fmt.Sprintf("-html %s: %v", html, err))
	}
	return nil
}

// writePage writes a page into a file, and prints where the file is.
func writePage(name string, p chart.Page, stderr io.Writer) error {
	var page bytes.Buffer
	if err := chart.WritePage(&page, p); err != nil {
		return err
	}
	if err := os.WriteFile(name, page.Bytes(), 0o666); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stderr, "the page is in %s\n", name)
	return err
}

// matchSections draws the scenarios: the loads of the origin, the commands of Redis, and the times
// of callers.
func matchSections(reports []matchReport, chosen []contender.Contender) []chart.Section {
	var sections []chart.Section
	for _, r := range reports {
		loads := chart.Bars{
			Title: "loads in " + r.Scenario, Unit: "loads", Log: true,
			Names: []string{"most of a round"},
		}
		took := chart.Bars{
			Title: "latency in " + r.Scenario, Unit: "ms", Names: []string{"p50", "p99", "max"},
		}
		commands := chart.Bars{
			Title: "commands at Redis in " + r.Scenario, Unit: "commands", Log: true,
			Names: []string{"most of a round"},
		}
		for _, c := range chosen {
			rs := r.Results[c.Name]
			if len(rs) == 0 {
				continue
			}
			most := []float64{float64(slices.Max(allLoads(rs)))}
			loads.Rows = append(loads.Rows,
				chart.Row{Label: c.Name, Values: most, Note: r.Failed[c.Name]})
			ms := func(of func(contestResult) int64) float64 {
				return float64(middle(rs, of)) / 1e6
			}
			took.Rows = append(took.Rows, chart.Row{Label: c.Name, Values: []float64{
				ms(func(r contestResult) int64 { return r.P50 }),
				ms(func(r contestResult) int64 { return r.P99 }),
				ms(func(r contestResult) int64 { return r.Max }),
			}})
			if n := mostCommandsOf(rs); n > 0 {
				commands.Rows = append(commands.Rows,
					chart.Row{Label: c.Name, Values: []float64{float64(n)}})
			}
		}
		s := chart.Section{
			Title: fmt.Sprintf("%s, %d processes with %d callers in each", r.Scenario, r.Processes,
				r.Callers),
			Text: []string{sentence(r.What)},
			Figures: []chart.Figure{
				{
					Caption: "The largest number of loads in a round, on a logarithmic scale. The text below a row says what the contender did wrong.",
					Chart:   loads,
				},
				{
					Caption: "The time until callers had an answer, including the load: the median of the repetitions.",
					Chart:   took,
				},
			},
		}
		if len(commands.Rows) > 0 {
			s.Figures = append(s.Figures, chart.Figure{
				Caption: "The largest number of commands of Redis in a round, including commands in scripts, on a logarithmic scale.",
				Chart:   commands,
			})
		}
		sections = append(sections, s)
	}
	return sections
}

// sentence makes a sentence from a text, with a capital letter and a full stop.
func sentence(s string) string { return string(s[0]-'a'+'A') + s[1:] + "." }

// page returns the page of a run of scenarios.
func (p runPlan) page(about about, reports []matchReport, chosen []contender.Contender) chart.Page {
	names := chart.Section{Title: "The contenders"}
	for _, c := range chosen {
		names.Text = append(names.Text, c.Name+": "+described(c))
	}
	sections := append(matchSections(reports, chosen), names)
	if p.Scenario == "" {
		sections = slices.Insert(sections, 0, scoreSection(reports, chosen))
	}
	return chart.Page{
		Title: "What happens to the origin",
		Intro: []string{
			about.String(),
			fmt.Sprintf(
				"A load takes %v, values have %d bytes, locks and leases last %v, and contenders that poll do so every %v. Each scenario ran %d times, each time with fresh processes and another order of the contenders.",
				p.Load, p.Size, p.LockTTL, p.Poll, p.Repeat),
		},
		Sections: sections,
	}
}

// page returns the page of growth.
func (p growthPlan) page(about about, byProcesses, byCallers []growthRow) chart.Page {
	perProcess, fixed := slope(byProcesses)
	page := chart.Page{Title: "What grows with the fleet",
		Intro: []string{about.String(), fmt.Sprintf(
			"%s on a cold key, a load of %v, %d rounds in each of %s.", p.Contender, p.Load,
			p.Rounds,
			repetitions(p.Repeat))}}
	for _, part := range []struct {
		title, axis string
		rows        []growthRow
		x           func(growthRow) int
	}{
		{fmt.Sprintf("Processes, with %d callers in each", growthCallers), "processes", byProcesses,
			func(r growthRow) int {
				return r.Processes
			}},
		{fmt.Sprintf("Callers in each of %d processes", growthProcesses), "callers", byCallers,
			func(r growthRow) int {
				return r.Callers
			}},
	} {
		if len(part.rows) == 0 {
			continue
		}
		commands := chart.Lines{
			Title: "commands by " + part.axis, X: part.axis, Y: "commands", LogX: true,
			Series: []chart.Series{{Name: p.Contender}},
		}
		both := func(title, y string, of func(growthTimes) []int64) chart.Lines {
			lines := chart.Lines{
				Title: title + " by " + part.axis, X: part.axis, Y: y, LogX: true,
				Series: []chart.Series{{Name: p.Contender}, {Name: growthFloor}},
			}
			for _, r := range part.rows {
				for i, times := range []growthTimes{r.Took, r.Floor} {
					if ns := of(times); len(ns) > 0 {
						lines.Series[i].Points = append(lines.Series[i].Points,
							chart.Point{X: float64(part.x(r)), Y: float64(median(ns)) / 1e6})
					}
				}
			}
			return lines
		}
		for _, r := range part.rows {
			commands.Series[0].Points = append(commands.Series[0].Points,
				chart.Point{X: float64(part.x(r)), Y: float64(r.Commands)})
		}
		s := chart.Section{Title: part.title, Figures: []chart.Figure{
			{
				Caption: "The number of commands of Redis for one stampede, including commands in scripts.",
				Chart:   commands,
			},
			{Caption: "The 99th percentile of the latency without the load, beside that of singleflight, in which each process loads by itself.",
				Chart: both("p99", "ms over the load", func(t growthTimes) []int64 {
					return t.P99
				})},
			{Caption: "The part of this latency until the load begins.",
				Chart: both("first load", "ms", func(t growthTimes) []int64 {
					return t.First
				})},
			{Caption: "The time from the end of the load until 99 of 100 callers have its result.",
				Chart: both("wake-up", "ms after the load", func(t growthTimes) []int64 {
					return t.Woken
				})},
		}}
		if part.axis == "processes" {
			s.Text = []string{
				fmt.Sprintf("A stampede takes %.2f commands for each process, plus %.1f commands.",
					perProcess, fixed),
			}
		}
		page.Sections = append(page.Sections, s)
	}
	return page
}
