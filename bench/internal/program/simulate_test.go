package program

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/simulate"
)

// smallFleet returns the options of a simulation that takes almost no time.
func smallFleet(more ...string) []string {
	return append([]string{"simulate", "-replicas", "10", "-keys", "500", "-low", "50", "-high",
		"200", "-time", "10m", "-day", "10m",
		"-ttl", "30s", "-failover-at", "5m", "-deploy-time", "1m"}, more...)
}

func TestSimulate(t *testing.T) {
	code, stdout, stderr := bench(t, smallFleet()...)
	if code != 0 {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	origin, requests, _ := strings.Cut(stdout, "\n  requests")
	for _, p := range simulate.Policies {
		if row := rowOf(origin, p.Name); len(row) != 14 || row[1] == "0" {
			t.Errorf("%s: want a row of 14 columns with loads:\n%s", p.Name, origin)
		}
		if row := rowOf(requests, p.Name); len(row) != 13 || row[1] == "0" ||
			(row[3] == "0") != !p.Stale {
			t.Errorf("%s: want a row of 13 columns with requests, and stale ones if it has them:\n%s",
				p.Name, requests)
		}
	}
	if strings.Contains(stdout, "cut short") {
		t.Errorf("cut short:\n%s", stdout)
	}
	if _, stdout, _ := bench(t,
		smallFleet("-policies", "lease", "-steps", "1000")...); !strings.Contains(stdout,
		"lease was cut short") {
		t.Errorf("want it cut short:\n%s", stdout)
	}
}

func TestSimulateForMachines(t *testing.T) {
	args := smallFleet("-json", "-policies", "lease,none", "-seed", "7")
	code, stdout, stderr := bench(t, args...)
	var printed struct {
		Plan    map[string]any
		Results []map[string]any
	}
	if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v, stderr %q", code, err, stderr)
	}
	if _, again, _ := bench(t, args...); again != stdout {
		t.Error("the same command prints something else the second time")
	}
	if len(printed.Results) != 2 || printed.Results[0]["policy"] != "lease" ||
		printed.Results[1]["policy"] != "none" || printed.Plan["seed"] != 7. {
		t.Fatalf("want the plan, and lease and none:\n%s", stdout)
	}
	// These names are documented, so readers of the JSON rely on them.
	for _, name := range []string{
		"requests", "fresh", "loaded", "stale", "errors", "loads", "loadsPerSecond", "peakLoads",
		"loadsAtOnce", "commands", "peakCommands",
		"messages", "peakMessages", "redisBusy", "mostOfOne",
	} {
		if _, ok := printed.Results[0][name].(float64); !ok {
			t.Errorf("no number %q in a result", name)
		}
	}
	for _, of := range []string{"all", "missed"} {
		latency, _ := printed.Results[0][of].(map[string]any)
		for _, name := range []string{"p50Nanos", "p99Nanos", "p999Nanos", "maxNanos"} {
			if ns, ok := latency[name].(float64); !ok || ns <= 0 {
				t.Errorf("%s of %s is %v", name, of, latency[name])
			}
		}
	}
}

// TestSimulateAsItIs compares the loads of real and simulated stampedes, because their numbers are
// certain. It doesn't compare times, because they depend on the machine.
func TestSimulateAsItIs(t *testing.T) {
	addr := redistest.Start(t).Addr()
	inOneOf(t, 3, func() (wrong []string) {
		code, stdout, stderr := bench(t, "simulate", "-validate", "-redis", addr, "-processes", "2,3",
			"-callers", "5", "-rounds", "2",
			// On a busy machine all requests arrive within this time.
			"-runs", "2", "-load", "500ms", "-json")
		var printed struct {
			Calibrations []calibration
			Results      []comparison
		}
		if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v, stderr %q", code, err, stderr)
		}
		if len(printed.Results) != 8 || len(printed.Calibrations) != 4 {
			t.Fatalf("%d results and %d calibrations, want 8 and 4", len(printed.Results),
				len(printed.Calibrations))
		}
		for _, c := range printed.Results {
			loads := map[string]int{
				"none": 5 * c.Processes, "singleflight": c.Processes, contender.FlightLock: 1,
				"cacheguard": 1,
			}[c.Protection]
			want := extent{loads, loads}
			if c.Loads != want || c.SimLoads != want || c.Errors != 0 {
				text := fmt.Sprintf(
					"%s in %d processes: %v loads ran, %v were simulated, want %v; %d errors",
					c.Protection, c.Processes, c.Loads, c.SimLoads, want, c.Errors)
				// Without a lease, a process that is late finds the value instead of loading it. So
				// does one in the simulation, if by a calibration requests begin late.
				slow := slices.ContainsFunc(printed.Calibrations, func(m calibration) bool {
					return int64(5*c.Processes)*(m.Start+m.Client) > 500e6
				})
				if c.SimLoads != want && (loads == 1 || !slow) {
					t.Error(text)
				}
				wrong = append(wrong, text)
			}
			if len(c.P99) != 2 || slices.Min(c.SimP99) < 500e6 {
				t.Errorf("%s in %d processes: 99th percentiles %v and %v, want 2 of at least a load",
					c.Protection, c.Processes, c.P99, c.SimP99)
			} else if slices.Min(c.P99) < 500e6 {
				wrong = append(wrong, fmt.Sprintf("%s in %d processes: 99th percentiles %v",
					c.Protection, c.Processes, c.P99))
			}
		}
		return wrong
	})
}
