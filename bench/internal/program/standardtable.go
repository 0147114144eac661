package program

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// matchReport is the result of a scenario in the form in which -json prints it.
type matchReport struct {
	Scenario  string `json:"scenario"`
	What      string `json:"what"`
	Processes int    `json:"processes"`
	Callers   int    `json:"callers"`
	// By contender, one result for each repetition.
	Results map[string][]contestResult `json:"results"`
	Failed  map[string]string          `json:"failed"` // by contender: what went wrong
}

// reportsOf returns the reports of matches.
func reportsOf(matches []match, results []map[string][]contestResult) []matchReport {
	reports := make([]matchReport, len(matches))
	for i, m := range matches {
		reports[i] = matchReport{
			m.scenario.Name, m.scenario.What, m.Processes, m.Callers, results[i],
			map[string]string{},
		}
		for name, rs := range results[i] {
			if wrong := m.scenario.verdict(rs); wrong != "" {
				reports[i].Failed[name] = wrong
			}
		}
	}
	return reports
}

// print writes the results as text or as JSON.
func (p runPlan) print(
	w io.Writer, about about, reports []matchReport, chosen []contender.Contender, peers Peers,
) error {
	if p.json {
		notes := map[string]string{}
		for _, c := range chosen {
			notes[c.Name] = described(c)
		}
		return printJSON(w, map[string]any{
			"about": about, "plan": p, "contenders": notes, "scenarios": reports,
			"ratios": p.ratios(reports),
		})
	}
	var s sheet
	s.say("a load takes %v; value %d bytes; locks and leases of %v; polling every %v; %s\n%v\n",
		p.Load, p.Size, p.LockTTL, p.Poll, repetitions(p.Repeat), about)
	if p.Scenario == "" {
		printScores(&s, reports, chosen)
	}
	for _, r := range reports {
		s.say("\n%s, %d processes x %d callers: %s\n", r.Scenario, r.Processes, r.Callers, r.What)
		s.columns("contender", "loads", "at once", "errors", "stuck", "stale", "left", "p50 ms",
			"p99 ms", "max ms", "trips",
			"commands", remark(" "))
		for _, c := range chosen {
			rs := r.Results[c.Name]
			s.row(c.Name, span(allLoads(rs)),
				most(rs, func(r contestResult) int { return r.AtOnce }),
				total(rs, func(r contestResult) int { return r.Errors }),
				total(rs, func(r contestResult) int { return r.Stuck }),
				total(rs, func(r contestResult) int { return r.Stale }),
				total(rs, func(r contestResult) int { return r.Left }),
				tookOf(rs, func(r contestResult) int64 { return r.P50 }),
				tookOf(rs, func(r contestResult) int64 { return r.P99 }),
				tookOf(rs, func(r contestResult) int64 { return r.Max }),
				count(int64(most(rs, func(r contestResult) int { return int(r.Trips) }))),
				count(mostCommandsOf(rs)), mark(r.Failed[c.Name]))
		}
		for _, c := range chosen {
			if i := slices.IndexFunc(r.Results[c.Name], errs.seen); i >= 0 &&
				strings.Contains(r.Failed[c.Name], errs.words) {
				s.say("%s got: %s\n", c.Name, r.Results[c.Name][i].Error)
			}
		}
	}
	s.say(`
loads: in each round, least to most. at once: of those, under way at the same time at most. stuck: callers without an answer
when the patience was over. stale: told what was before a change that had been acknowledged when they asked. left: told it when
all was over. p50, p99, max: of answers, from the moment of the burst, the load included, in missing of the first burst; median of the
repetitions (least to most). Callers of a burst share its fate: it counts as one sample, and but for cold there is one in a repetition. trips: round trips to Redis, most of one process. commands: of one round, all processes, those in scripts too, most.
-: nobody has answered, or nobody counts: an embedded Redis no commands, and those who have a client of their own no trips.
`)
	if peers.among(chosen) {
		s.say("\n")
		for _, c := range chosen {
			s.say("%s: %s\n", c.Name, described(c))
		}
	}
	return s.printTo(w)
}

// described returns the description and the note of a contender.
func described(c contender.Contender) string { return strings.TrimSpace(c.What + ". " + c.Note) }

// mark returns the remark behind a row that shows a fault.
func mark(wrong string) remark {
	if wrong == "" {
		return ""
	}
	return remark("  <- " + wrong)
}

func allLoads(rs []contestResult) []int {
	return flat(rs, func(r contestResult) []int { return r.Loads })
}

// tookOf formats times. It returns a dash if no caller got an answer.
func tookOf(rs []contestResult, of func(contestResult) int64) string {
	answered := slices.DeleteFunc(slices.Clone(rs), func(r contestResult) bool {
		return r.Max == 0
	})
	return ms(answered, of)
}

// count formats a number. It returns a dash if the number wasn't counted.
func count(n int64) string {
	if n == notCounted {
		return "-"
	}
	return fmt.Sprint(n)
}

// mostCommandsOf returns the largest number of commands in one round of any of the results, or
// notCounted if no result has counted commands.
func mostCommandsOf(rs []contestResult) int64 {
	counted := flat(rs, func(r contestResult) []int64 { return r.Commands })
	return slices.Max(append(counted, notCounted))
}
