package program

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// printed is the JSON of scenarios.
type printed struct {
	Plan      runPlan
	Scenarios []matchReport
}

func runScenario(t *testing.T, args ...string) printed {
	t.Helper()
	code, stdout, stderr := bench(t, append(args, "-json")...)
	var p printed
	if err := json.Unmarshal([]byte(stdout), &p); code != 0 || err != nil {
		t.Fatalf("bench %v: exit code %d, %v, stderr %q", args, code, err, stderr)
	}
	return p
}

// Each scenario detects a contender that fails in it. The loader doesn't fail.
func TestScenarios(t *testing.T) {
	// This skips the test without a redis-server, because each scenario would embed a Redis.
	redistest.Start(t)
	for _, c := range []struct {
		scenario, fails string
		words           string
		loads           int // the loads of cacheguard
	}{
		{"cold", "none", "loads more than once", 1},
		{"missing", "singleflight", "loads more than once", 1},
		{"failing", "stage-compare", "loads more than once", 1},
		{"avalanche", "singleflight", "loads more than once", 20},
		{"killed", "stage-setnx", "no answer for some", 2},
		{"redis-gone", "none", "errors", 2},
		{"slow", "stage-compare", "loads more than once", 1},
		{"race-same", "stage-compare", "leaves what is stale", 2},
		{"race-other", "singleflight", "serves what is stale", 2},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			args := []string{
				c.scenario, "-processes", "2", "-repeat", "1", "-poll", "20ms", "-contenders",
				c.fails + ",cacheguard,cacheguard-strong",
			}
			switch c.scenario {
			case "race-same", "race-other":
				// Enough time for a change in the middle of the load, without the end of a lock.
				args = append(args, "-callers", "5", "-load", "2s", "-lock-ttl", "20s", "-patience",
					"15s")
			case "killed": // enough time for a busy machine to renew a lease
				args = append(args, "-callers", "5", "-load", "1s", "-lock-ttl", "4s", "-patience",
					"20s")
			case "slow":
				args = append(args, "-callers", "5", "-lock-ttl", "4s", "-patience", "40s")
			case "avalanche":
				// Few enough keys for each step to be answered within its time on a busy machine,
				// and a load that still runs when a process that is late asks.
				args = append(args, "-keys", "20", "-load", "1s", "-lock-ttl", "20s", "-patience",
					"20s")
			case "missing", "redis-gone": // here, too, a late caller asks before the load ends
				args = append(args, "-callers", "5", "-load", "1s", "-lock-ttl", "20s",
					"-patience", "20s")
			case "cold":
				args = append(args, "-callers", "5", "-rounds", "2", "-lock-ttl", "20s",
					"-patience", "20s")
			default:
				args = append(args, "-callers", "5", "-lock-ttl", "20s", "-patience", "20s")
			}
			// The machine may stand still between the steps of a scenario.
			inOneOf(t, 3, func() []string {
				return wrongIn(t, c.scenario, c.fails, c.words, c.loads, args)
			})
		})
	}
}

// wrongIn runs a scenario, and returns what is not as expected. What no standstill allows fails the
// test: with StrongReads nothing stale is served or left, and nobody who uses the loader remains
// without an answer.
func wrongIn(
	t *testing.T, scenario, fails, words string, loads int, args []string,
) (wrong []string) {
	t.Helper()
	p := runScenario(t, args...)
	if len(p.Scenarios) != 1 {
		t.Fatalf("%+v", p)
	}
	s := p.Scenarios[0]
	say := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	if !strings.Contains(s.Failed[fails], words) {
		say("%s failed with %q, want %q: %+v", fails, s.Failed[fails], words, s.Results[fails])
	}
	// A process that the message hasn't reached yet may answer with the value that it is loading.
	// The documentation says so. With StrongReads it may not.
	if f := s.Failed["cacheguard"]; f != "" &&
		!(strings.HasPrefix(scenario, "race") && f == servesStale.words) {
		say("cacheguard: %s: %+v", f, s.Results["cacheguard"])
	}
	if f := s.Failed["cacheguard-strong"]; f != "" {
		say("cacheguard with StrongReads: %s: %+v", f, s.Results["cacheguard-strong"])
	}
	for _, name := range []string{"cacheguard", "cacheguard-strong"} {
		for _, r := range s.Results[name] {
			if name == "cacheguard-strong" && r.Stale+r.Left > 0 || r.Stuck > 0 {
				t.Errorf("%s: %s: %+v", name, s.Failed[name], r)
			}
			if r.P50 <= 0 || r.P99 < r.P50 || r.Max < r.P99 || r.Requests == 0 || r.Trips == 0 ||
				(len(r.Commands) != len(r.Loads)) != (scenario == "redis-gone") ||
				r.Requests-r.Stuck-r.Lost <= 0 {
				t.Errorf("%s: %+v", name, r)
			}
			if slices.Max(r.Loads) != loads || (scenario == "killed") != (r.Lost > 0) {
				say("%s: %+v, want %d loads", name, r, loads)
			}
		}
	}
	return wrong
}

// The loader on a locker passes a scenario as it does without a locker.
func TestScenarioUnderLocks(t *testing.T) {
	redistest.Start(t)
	s := runScenario(t, "cold", "-processes", "2", "-callers", "5", "-rounds", "2", "-repeat", "1",
		"-lock-ttl", "20s", "-patience", "20s",
		"-contenders", "lock-redislock,lock-sqlite").Scenarios[0]
	for _, name := range []string{"lock-redislock", "lock-sqlite"} {
		if rs := s.Results[name]; s.Failed[name] != "" || len(rs) != 1 || len(rs[0].Loads) != 2 ||
			rs[0].Requests != 20 {
			t.Errorf("%s: %s: %+v", name, s.Failed[name], rs)
		}
	}
}

// The text output has a table for each scenario. If a contender has a fault, a remark behind its
// row names the fault.
func TestStandardTable(t *testing.T) {
	addr := redistest.Start(t).Addr()
	inOneOf(t, 3, func() (wrong []string) {
		code, stdout, stderr := bench(t, "race-other", "-redis", addr, "-processes", "2",
			"-callers", "5", "-repeat", "2", "-load", "1s", "-lock-ttl", "20s", "-patience", "15s",
			"-contenders", "singleflight,cacheguard,cacheguard-strong")
		if code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
		if want := "race-other, 2 processes x 5 callers"; !strings.Contains(stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, stdout)
		}
		// Without StrongReads it may serve what it was loading, until the message arrives: see
		// TestScenarios.
		if row := rowOf(stdout, "cacheguard"); row == nil || slices.Contains(row, "<-") &&
			!strings.Contains(strings.Join(row, " "), "<- "+servesStale.words) {
			wrong = append(wrong, fmt.Sprintf("cacheguard's row: %q", row))
		}
		row := rowOf(stdout, "cacheguard-strong")
		if row == nil || slices.Contains(row, "stale") {
			t.Errorf("cacheguard-strong's row: %q", row)
		}
		if slices.Contains(row, "<-") {
			wrong = append(wrong, fmt.Sprintf("cacheguard-strong's row: %q", row))
		}
		// On a busy machine the change may come after the load.
		if row := rowOf(stdout, "singleflight"); !strings.Contains(strings.Join(row, " "),
			leavesStale.words) {
			wrong = append(wrong, fmt.Sprintf("singleflight's row: %q", row))
		}
		return wrong
	})
}

// If there is no redis-server, a Redis is embedded, and the output says so.
func TestScenariosWithoutARedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, stdout, stderr := bench(t, "cold", "-processes", "2", "-callers", "5", "-rounds", "1",
		"-repeat", "1", "-contenders", "singleflight,cacheguard", "-lock-ttl", "20s", "-patience",
		"20s")
	if code != 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	if !strings.Contains(stdout, "embedded (miniredis)") {
		t.Errorf("it doesn't say that Redis is embedded:\n%s", stdout)
	}
	if row := rowOf(stdout, "cacheguard"); len(row) < 12 || row[1] != "1" || row[11] != "-" {
		t.Errorf("cacheguard's row: %q", row)
	}
}

// An embedded Redis is too slow for an avalanche, so the results would show the speed of this
// Redis, not of the contenders.
func TestStandardRunWithoutARedisServer(t *testing.T) {
	if !redistest.Full() {
		t.Skip("this takes long: set CACHEGUARD_TEST=full for it")
	}
	t.Setenv("PATH", t.TempDir())
	p := runScenario(t, "-contenders", "cacheguard", "-rounds", "1", "-repeat", "1", "-load",
		"20ms")
	var names []string
	for _, s := range p.Scenarios {
		names = append(names, s.Scenario)
	}
	if want := []string{
		"cold", "cold", "missing", "failing", "killed", "race-same", "race-other",
	}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// If one of the peers is among the contenders, the notes about all contenders are printed below the
// table. Peers are compared unless other contenders are named.
func TestPeersAreDescribed(t *testing.T) {
	ours := contender.Contender{Name: "ours", What: "one of ours", Note: "With a flaw."}
	theirs := contender.Contender{
		Name: "theirs", What: "one of theirs", Note: "example.com/theirs v1.2.3.",
	}
	peers := Peers{Contenders: []contender.Contender{theirs}}
	for _, c := range []struct {
		chosen []contender.Contender
		want   string
	}{
		{
			[]contender.Contender{ours, theirs},
			"\nours: one of ours. With a flaw.\ntheirs: one of theirs. example.com/theirs v1.2.3.\n",
		},
		{[]contender.Contender{ours}, ""},
	} {
		var out strings.Builder
		if err := (runPlan{}).print(&out, about{}, nil, c.chosen, peers); err != nil {
			t.Fatal(err)
		}
		if c.want == "" && strings.Contains(out.String(), "ours: ") ||
			!strings.HasSuffix(out.String(), c.want) {
			t.Errorf("want at the end %q:\n%s", c.want, out.String())
		}
	}
	p, err := parseContests(peers, "cold", nil, io.Discard)
	if err != nil || !slices.Equal(p.Against, append(slices.Clone(standardContenders), "theirs")) {
		t.Errorf("%v, %v", p.Against, err)
	}
}
