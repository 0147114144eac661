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
loads: the least and the largest number of loads in a round. at once: the largest number of loads that ran at the same time.
errors: the number of callers that got an error. stuck: the number of callers without an answer when -patience was over.
stale: the number of callers that asked after a change had been acknowledged, and got the old value. left: the number of callers
that got the old value after the end of the round. p50, p99, max: the time of answers, from the moment of the burst and including
the load; in missing, only of the first burst. It is the median of the repetitions, with the least and the most in brackets. All
callers of a burst depend on the same load, so a burst is one sample. Only cold has more than one burst in a repetition.
trips: the largest number of round trips of one process to Redis. commands: the largest number of commands of all processes in one
round, including commands in scripts. A dash: no caller got an answer, or the number isn't counted. Commands aren't counted with
an embedded Redis, and trips aren't counted for contenders that have their own client.
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
