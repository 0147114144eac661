package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/zktest"
)

// TestMain makes the test binary a replica when a run has started it as one.
func TestMain(m *testing.M) {
	zktest.SuppressRace()
	// On a busy machine Redis can be late by seconds. The replicas inherit the variable.
	_ = os.Setenv(contender.OpTimeoutEnv, "4s")
	benchLease, lockTimeout = 30*time.Second, 10*time.Second
	if os.Getenv(childEnv) != "" {
		Main(testPeers)
	}
	if os.Getenv("GORACE") == "" {
		// Otherwise each replica takes a second to end under -race.
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(redistest.Main(m))
}

// bench runs a command as main does and returns what it prints.
func bench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), testPeers, args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// inOneOf repeats a measurement until nothing in it is wrong, and fails the test if something is
// wrong in each of the tries. Such a measurement counts what happens in a short time, in which a
// busy machine may let nothing happen.
func inOneOf(t *testing.T, tries int, measure func() (wrong []string)) {
	t.Helper()
	for {
		wrong := measure()
		if len(wrong) == 0 {
			return
		}
		if tries--; tries == 0 {
			t.Errorf("in the last try: %s", strings.Join(wrong, "\n"))
			return
		}
	}
}

// rowOf returns the cells of the table's row with this name, or nil if there is none.
func rowOf(table, name string) []string {
	for line := range strings.Lines(table) {
		if cells := strings.Fields(line); len(cells) > 1 && cells[0] == name {
			return cells
		}
	}
	return nil
}

func TestWrongCommandLines(t *testing.T) {
	for _, args := range []string{
		"stampedes", "stampede -rounds 0", "stampede -protections nobody", "stampede more",
		"stampede -load -1s",
		"expiry -rate 0", "expiry -protections stale", "expiry -time 1ms", "expiry -size 1",
		"outage -outage 0s", "outage -protections swr",
		"handover -lockers nobody", "handover -contenders 1", "handover -contenders 2 -processes 3",
		"handover -growth 1", "handover -growth 2,many",
		"locks -lockers nobody", "locks -processes 1", "locks -lease 1ms", "locks -time 0s",
		"locks -names 0", "locks more",
		"cold -contenders nobody", "cold -contenders none,none",
		"stampede -protections none,cacheguard,none", "growth -processes 1,1",
		"growth -contender none,cacheguard", "cold -processes 0", "cold -keys 5",
		"avalanche -callers 5", "avalanche -keys 0", "slow -load 1s", "killed -rounds 2",
		"redis-gone -redis 127.0.0.1:1", "cold -redis localhost", "cold -redis 127.0.0.1:1",
		"stampede -redis 127.0.0.1:1", "hits -redis 127.0.0.1:1", "expiry -redis 127.0.0.1:1",
		"killed -processes 1", "cold -load 1s -patience 1s", "slow -lock-ttl 3s -patience 10s",
		"killed -lock-ttl 5s", "-processes 4", "race", "growth -processes 0", "hits -sizes 1",
		"hits -goroutines 0", "hits -contenders nobody", "growth -contender nobody",
		"growth -callers many",
		"simulate -replicas 0", "simulate -policies nobody", "simulate -ttl 1ms",
		"simulate -validate -processes 0", "simulate -validate -processes=", "simulate more",
		"compare", "compare one.json", "compare -tolerance 2 one.json two.json",
		"hits -floor nobody", "hits -many -1",
		"proxy", "proxy -origin localhost:8000", "proxy -origin http://127.0.0.1:1 -time -1s",
		"proxy -origin http://127.0.0.1:1 more", "proxy -origin http://127.0.0.1:1/shop",
		"proxy -origin http://127.0.0.1:1?a=b",
		"proxy -origin http://127.0.0.1:1 -redis 127.0.0.1:1",
		"proxy -origin http://127.0.0.1:1 -heuristic 2", "simulate -low 0 -high 0",
		"results -only nobody", "results more", "simulate -processes 4", "simulate -validate -keys 5",
	} {
		if code, _, stderr := bench(t, strings.Fields(args)...); code != 2 || stderr == "" {
			t.Errorf("bench %s: exit code %d, want 2; stderr %q", args, code, stderr)
		}
	}
}

// The documentation of the command lists every command.
func TestCommandsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("../../main.go")
	if err != nil {
		t.Fatal(err)
	}
	list, rest, _ := strings.Cut(string(source), "// Each of these commands")
	_, proxy, _ := strings.Cut(rest, "// # A proxy")
	for _, name := range commandNames() {
		if slices.Contains(scenarioNames(), name) { // the list has them in a sentence
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(list) {
				t.Errorf("the scenario %s is not listed", name)
			}
		} else if !strings.Contains(list+proxy, "go run ./bench "+name+" ") {
			t.Errorf("the command %s is not listed", name)
		}
	}
}

func TestStampede(t *testing.T) {
	addr := redistest.Start(t).Addr()
	code, stdout, stderr := bench(t, "stampede", "-redis", addr, "-processes", "2", "-callers", "5",
		"-rounds", "1",
		"-repeat", "1", "-load", "20ms", "-protections", "flight,cacheguard")
	if row := rowOf(stdout, "cacheguard"); code != 0 || row == nil || row[1] != "1" ||
		row[2] != "0" {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, stderr, stdout)
	}
}

// TestStampedeOnLocks uses the loader on each locker: 4 processes with 50 callers make one load.
func TestStampedeOnLocks(t *testing.T) {
	addr := redistest.Start(t).Addr()
	for _, name := range lockSystemNames {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := bench(t, "stampede", "-redis", addr, "-processes", "4",
				"-callers", "50", "-rounds", "3",
				"-repeat", "1", "-load", "20ms", "-protections", name)
			if strings.Contains(stderr, "can't be had here") && !redistest.Full() {
				t.Skip(stderr)
			}
			if row := rowOf(stdout, name); code != 0 || row == nil || row[1] != "1" ||
				row[2] != "0" {
				t.Errorf("exit code %d, stderr %q, stdout:\n%s", code, stderr, stdout)
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	addr := redistest.Start(t).Addr()
	file := filepath.Join(t.TempDir(), "loads.svg")
	inOneOf(t, 3, func() (wrong []string) {
		code, stdout, stderr := bench(t, "expiry", "-redis", addr, "-processes", "2", "-rate", "50",
			"-time", "300ms", "-ttl", "100ms", "-load", "10ms", "-svg", file)
		if code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
		for _, name := range []string{
			"noop", "none", "get", "singleflight", "xfetch", "cacheguard", "cacheguard-swr",
			"cacheguard-early", "cacheguard-early+swr",
		} {
			row := rowOf(stdout, name)
			if row == nil || row[1] != "30" {
				t.Fatalf("%s: want 30 requests:\n%s", name, stdout)
			}
			if row[2] != "0" || (row[3] == "0") != (name == "noop" || name == "get") {
				wrong = append(wrong, fmt.Sprintf(
					"%s: want no error, and loads where something expires:\n%s", name, stdout))
			}
		}
		return wrong
	})
	if picture, err := os.ReadFile(file); err != nil ||
		!strings.Contains(string(picture), ">cacheguard-early+swr</text>") {
		t.Errorf("the picture: %v, %s", err, picture)
	}
}

func TestOutage(t *testing.T) {
	addr := redistest.Start(t).Addr()
	inOneOf(t, 3, func() (wrong []string) {
		code, stdout, stderr := bench(t, "outage", "-redis", addr, "-processes", "2", "-rate", "50",
			"-before", "100ms", "-outage", "500ms", "-after", "200ms", "-backoff", "200ms", "-ttl",
			"100ms", "-load", "10ms", "-json")
		var printed struct {
			Results map[string][]outageTally
		}
		if err := json.Unmarshal([]byte(stdout), &printed); code != 0 || err != nil {
			t.Fatalf("exit code %d, %v, stderr %q", code, err, stderr)
		}
		for _, name := range []string{
			"cacheguard-stale", "cacheguard-stale-if-error", "cacheguard", "singleflight",
		} {
			ts := printed.Results[name]
			if len(ts) != 1 || ts[0].Requests != 50 {
				t.Fatalf("%s: want 50 requests: %+v", name, ts)
			}
			keeps := strings.HasPrefix(name, "cacheguard-stale")
			if ts[0].Attempts == 0 || keeps != (ts[0].Stale > 0) || keeps != (ts[0].Errors == 0) {
				wrong = append(wrong, fmt.Sprintf(
					"%s: want an attempt, and stale answers instead of errors, or errors: %+v",
					name, ts[0]))
			}
		}
		return wrong
	})
}
