package program

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/bench/internal/chart"
	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// scored returns a run of three matches. One contender fails in none of them, and one fails in all.
func scored() ([]matchReport, []contender.Contender) {
	good := contestResult{Loads: []int{1}, Need: 1, Requests: 1, Max: 1}
	crowd, waits := good, good
	crowd.Loads, waits.Stuck = []int{4}, 2
	matches := []match{
		{scenarioNamed("cold"), 4, 50}, {scenarioNamed("cold"), 16, 50},
		{scenarioNamed("killed"), 4, 50},
	}
	return reportsOf(matches, []map[string][]contestResult{
			{"best": {good, good}, "crowd": {good, crowd}},
			{"best": {good, good}, "crowd": {crowd, good}},
			{"best": {good, good}, "crowd": {waits, good}},
		}),
		[]contender.Contender{{Name: "best", What: "the best"}, {Name: "crowd", What: "a crowd"}}
}

// For each contender the scoreboard shows the number of scenarios that it passes, and the scenarios
// in which it fails in any repetition. Fleets of different sizes are listed separately.
func TestScoreboard(t *testing.T) {
	reports, chosen := scored()
	scores := scoresOf(reports, chosen)
	if len(scores) != 2 || scores[0].passed != 3 || scores[0].fails() != "" ||
		scores[1].passed != 0 ||
		scores[1].fails() != "fails in cold 4x50, cold 16x50, killed" {
		t.Errorf("%+v", scores)
	}
}

// The standard report begins with the scoreboard, in the text and on the page. The report of a
// single scenario has none.
func TestScoreboardComesFirst(t *testing.T) {
	reports, chosen := scored()
	for name, first := range map[string]string{"": "scoreboard", "cold": "cold"} {
		p := runPlan{Scenario: name}
		var out, html bytes.Buffer
		if err := p.print(&out, about{}, reports, chosen, Peers{}); err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(out.String(), "\n\n")
		if len(parts) < 4 || !strings.HasPrefix(parts[1], first) {
			t.Fatalf("%q: want %s first:\n%s", name, first, out.String())
		}
		if got := rowOf(parts[1], "crowd"); name == "" &&
			!slices.Equal(got,
				strings.Fields("crowd 0 of 3 fails in cold 4x50, cold 16x50, killed")) {
			t.Errorf("crowd's line: %q", got)
		}
		page := p.page(about{}, reports, chosen)
		if err := chart.WritePage(&html, page); err != nil {
			t.Fatal(err)
		}
		if title := page.Sections[0].Title; !strings.HasPrefix(strings.ToLower(title), first) {
			t.Errorf("%q: the page begins with %q", name, title)
		}
		if has := strings.Contains(html.String(),
			"fails in cold 4x50, cold 16x50, killed"); has != (name == "") {
			t.Errorf("%q: the page has what crowd fails in: %v", name, has)
		}
	}
}
