package program

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// played is a run of scenarios.
type played struct {
	Plan      runPlan       `json:"plan"`
	Scenarios []matchReport `json:"scenarios"`
}

func (m *measuring) standard() (p played, err error) {
	out, err := m.get("go run ./bench", "-repeat 1 -rounds 1", "-json")
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(out, &p)
}

// standardNames are contenders of the standard run in the words of the pages. standardRows are its
// scenarios. The two scenarios with the same words share a row.
var (
	standardNames = map[string]string{
		"singleflight": "`singleflight`", "stage-watchdog": "lock, watchdog",
		contender.FlightLock: "lock under `singleflight`",
	}
	standardRows = map[string]string{
		"cold": "cold", "missing": "it does not exist, twice", "failing": "the load fails",
		"killed": "the leader is killed", "race-same": "a change during the load",
		"race-other": "a change during the load", "avalanche": "1,000 keys at once",
	}
)

// Table returns the table of the standard run, with fleets of all sizes or only of the first size.
func (p played) Table(all bool) string {
	heads, rows := []string{""}, [][]string{}
	for _, name := range p.Plan.Against {
		heads = append(heads, cmp.Or(standardNames[name], name))
	}
	var results map[string][]contestResult
	var failed map[string]string
	for _, r := range p.Scenarios {
		label := standardRows[r.Scenario]
		if r.Processes != p.Scenarios[0].Processes {
			if !all {
				continue
			}
			label += fmt.Sprintf(", %d processes", r.Processes)
		}
		row := []string{label}
		if n := len(rows); n > 0 && rows[n-1][0] == label {
			rows = rows[:n-1]
		} else {
			results, failed = map[string][]contestResult{}, map[string]string{}
		}
		for _, name := range p.Plan.Against {
			results[name] = append(results[name], r.Results[name]...)
			failed[name] += r.Failed[name]
			row = append(row, standardCell(results[name], failed[name], p.Plan.Patience))
		}
		rows = append(rows, row)
	}
	return markdownTable(heads, rows)
}

// standardCell has the most loads, the p99 in ms and the most commands, or what went wrong.
func standardCell(rs []contestResult, failed string, patience time.Duration) string {
	loads := fmt.Sprint(slices.Max(append(allLoads(rs), 0)))
	stuck := total(rs, func(r contestResult) int { return r.Stuck })
	switch {
	case strings.Contains(failed, leavesStale.words):
		return "*old stays*"
	case stuck > 0:
		asked := total(rs, func(r contestResult) int { return r.Requests })
		return fmt.Sprintf("*%s, %d %% wait over %.0f s*", loads, 100*stuck/asked,
			patience.Seconds())
	case failed != "":
		loads = "*" + loads + "*"
	}
	return fmt.Sprintf("%s / %s / %s", loads, wholeMs(rs), count(mostCommandsOf(rs)))
}
