package program

import (
	"fmt"
	"strings"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// score is the result of a contender in all scenarios of a run.
type score struct {
	contender string
	passed    int
	failed    []string // scenarios in which the contender had a fault
}

// passing is the condition that the scoreboard counts.
const passing = "as few loads as possible, no stale answer, no error, nobody left waiting"

// scoresOf computes the scores from the remarks behind the rows of the scenarios' tables.
func scoresOf(reports []matchReport, chosen []contender.Contender) []score {
	// The number of times that a scenario is run, with fleets of several sizes.
	times := map[string]int{}
	for _, r := range reports {
		times[r.Scenario]++
	}
	scores := make([]score, len(chosen))
	for i, c := range chosen {
		scores[i].contender = c.Name
		for _, r := range reports {
			switch {
			case r.Failed[c.Name] == "":
				scores[i].passed++
			case times[r.Scenario] > 1:
				sized := fmt.Sprintf("%s %dx%d", r.Scenario, r.Processes, r.Callers)
				scores[i].failed = append(scores[i].failed, sized)
			default:
				scores[i].failed = append(scores[i].failed, r.Scenario)
			}
		}
	}
	return scores
}

// fails returns the failed scenarios as text. It is empty if there are none.
func (s score) fails() string {
	if len(s.failed) == 0 {
		return ""
	}
	return "fails in " + strings.Join(s.failed, ", ")
}

// printScores prints one line for each contender.
func printScores(s *sheet, reports []matchReport, chosen []contender.Contender) {
	s.say("\nscoreboard: scenarios with %s\n", passing)
	s.columns("contender", "passes", remark(" "))
	for _, one := range scoresOf(reports, chosen) {
		s.row(one.contender, fmt.Sprintf("%d of %d", one.passed, len(reports)),
			remark("  "+one.fails()))
	}
}

// scoreSection returns the scoreboard as a section of the page.
func scoreSection(reports []matchReport, chosen []contender.Contender) chart.Section {
	passes := chart.Bars{Title: "scenarios that a contender passes", Names: []string{"passes"}}
	for _, one := range scoresOf(reports, chosen) {
		passed := []float64{float64(one.passed)}
		passes.Rows = append(passes.Rows,
			chart.Row{Label: one.contender, Values: passed, Note: one.fails()})
	}
	caption := fmt.Sprintf("Of %d scenarios those with %s.", len(reports), passing)
	return chart.Section{
		Title: "Scoreboard", Figures: []chart.Figure{{Caption: caption, Chart: passes}},
	}
}
