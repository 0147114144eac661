package model_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	maxDepth    = 20_000           // steps of one execution; the models need fewer than 200
	maxMegabyte = 3_000            // memory of one checker
	maxTime     = 30 * time.Minute // time of one run, beside other work
	checkers    = 2                // that run side by side
)

// A run is one "run:" line in the header of a model.
type run struct {
	macros []string
	fails  string // the check that must fail, empty when the run must hold
	floor  int    // a run that holds finds more states than this
	full   bool   // takes long: left for the full test
}

func (r run) name() string {
	if len(r.macros) == 0 {
		return "rule"
	}
	return strings.Join(r.macros, ",")
}

// TestModels checks every run of every model.
func TestModels(t *testing.T) {
	full := fullTest()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			if full {
				t.Fatalf("the models cannot be checked: %v", err)
			}
			t.Skipf("skipping the check of all models: %v", err)
		}
	}

	slots := make(chan struct{}, checkers)
	var left []string
	for _, path := range models(t) {
		model := strings.TrimSuffix(filepath.Base(path), ".pml")
		for _, r := range runs(t, path) {
			if r.full && (!full || testing.Short()) {
				left = append(left, model+"/"+r.name())
				continue
			}
			t.Run(model+"/"+r.name(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				start := time.Now()
				out := check(t, path, r)
				rep := parseReport(out)
				if err := r.judge(rep); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				t.Logf("%d states, %.1f s, found: %q", rep.states, time.Since(start).Seconds(),
					rep.failed)
			})
		}
	}
	if len(left) > 0 {
		t.Run("full", func(t *testing.T) {
			t.Skipf("skipping the long runs, set CACHEGUARD_TEST=full for them: %s",
				strings.Join(left, " "))
		})
	}
}

// check lets spin make a checker for one run of a model and returns what the checker prints.
func check(t *testing.T, path string, r run) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), maxTime)
	defer cancel()

	spin := []string{"-a"}
	for _, m := range r.macros {
		spin = append(spin, "-D"+m)
	}
	command(ctx, t, dir, "spin", append(spin, path)...)

	// A quick run spends more time in the compiler than in the checker. For a long run the checker
	// gets a larger hash table, of 2^25 places. With COLLAPSE it would need less memory (1.0 GB
	// instead of 2.2 for the largest run), but half as much time again.
	how, table := "-O0", "-w22"
	if r.full {
		how, table = "-O2", "-w25"
	}
	command(ctx, t, dir, "gcc", how, "-w", "-DSAFETY", fmt.Sprintf("-DMEMLIM=%d", maxMegabyte),
		"-o", "pan", "pan.c")

	return command(ctx, t, dir, filepath.Join(dir, "pan"), fmt.Sprintf("-m%d", maxDepth), table)
}

func command(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s was not ready after %v\n%s", cmd, maxTime, out)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// A report is what a checker says about its search.
type report struct {
	failed    string   // the first check that failed, empty if none
	errors    int      // -1 when the checker did not come to its end
	states    int      // different states found
	truncated string   // why the search is not complete, empty if it is
	unreached []string // statements that no execution reaches
	checks    bool     // assertions and end states were looked at
}

var (
	panFailure   = regexp.MustCompile(`(?m)^pan:\d+: (.+?) \(at depth \d+\)`)
	panAssertion = regexp.MustCompile(`^assertion violated\s+!\((\w+)\)$`)
	panErrors    = regexp.MustCompile(`(?m)^State-vector .* errors: (\d+)$`)
	panStates    = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
	panTruncated = regexp.MustCompile(
		`(?m)^(error: max search depth too small.*|pan: reached -DMEMLIM bound|pan: out of memory.*|Warning: Search not completed)$`)
	panUnreached = regexp.MustCompile(`(?m)^\t(\S+:\d+), state \d+, "(.*)"$`)
	panChecks    = regexp.MustCompile(`(?s)assertion violations\s+\+.*invalid end states\s+\+`)
)

func parseReport(out string) report {
	rep := report{errors: -1, checks: panChecks.MatchString(out)}
	if m := panFailure.FindStringSubmatch(out); m != nil {
		rep.failed = m[1]
		if a := panAssertion.FindStringSubmatch(m[1]); a != nil {
			rep.failed = a[1]
		}
	}
	if m := panErrors.FindStringSubmatch(out); m != nil {
		rep.errors, _ = strconv.Atoi(m[1])
	}
	if m := panStates.FindStringSubmatch(out); m != nil {
		rep.states, _ = strconv.Atoi(m[1])
	}
	rep.truncated = strings.TrimSpace(panTruncated.FindString(out))
	for _, m := range panUnreached.FindAllStringSubmatch(out, -1) {
		if m[2] != "-end-" { // the world goes round for ever
			rep.unreached = append(rep.unreached, filepath.Base(m[1])+" "+m[2])
		}
	}
	return rep
}

// judge says whether a report is the one that the run must have.
func (r run) judge(rep report) error {
	switch {
	case rep.errors < 0 || rep.states == 0:
		return errors.New("the checker gave no result")
	case !rep.checks:
		return errors.New("the checker did not look at assertions and end states")
	case r.fails != "" && rep.failed == "":
		return fmt.Errorf("holds, but must fail by %q", r.fails)
	case r.fails != "" && rep.failed != r.fails:
		return fmt.Errorf("fails by %q, but must fail by %q", rep.failed, r.fails)
	case r.fails != "":
		return nil
	case rep.failed != "" || rep.errors > 0:
		return fmt.Errorf("fails by %q, but must hold", rep.failed)
	case rep.truncated != "":
		return fmt.Errorf("the search is not complete: %s", rep.truncated)
	case len(rep.unreached) > 0:
		return fmt.Errorf("holds, but never reaches %s", strings.Join(rep.unreached, ", "))
	case rep.states <= r.floor:
		return fmt.Errorf("holds with %d states, but must find more than %d", rep.states, r.floor)
	}
	return nil
}

// fullTest says whether what cannot run must fail instead of being skipped.
func fullTest() bool {
	return slices.ContainsFunc(strings.Split(os.Getenv("CACHEGUARD_TEST"), ","),
		func(s string) bool {
			s = strings.TrimSpace(s)
			return s == "full" || s == "soak"
		})
}

func models(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("*.pml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no models: %v", err)
	}
	return paths
}

var (
	runPrefix = regexp.MustCompile(`^\s*run:`)
	runLine   = regexp.MustCompile(
		`^\s*run: (?:([A-Z][A-Z_,]*) )?(?:holds, over (\d+) states|fails "([^"]+)")( \(full\))?$`)
)

// runs reads the run lines from the header of a model.
func runs(t *testing.T, path string) []run {
	t.Helper()
	header, _ := source(t, path)
	var all []run
	for line := range strings.Lines(header) {
		line = strings.TrimRight(line, "\r\n")
		if !runPrefix.MatchString(line) {
			continue
		}
		m := runLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%s: cannot read the line %q", path, line)
		}
		r := run{fails: m[3], full: m[4] != ""}
		if m[1] != "" {
			r.macros = strings.Split(m[1], ",")
		}
		if m[2] != "" {
			r.floor, _ = strconv.Atoi(m[2])
		}
		all = append(all, r)
	}
	return all
}

// source returns a model's header, which is its first comment, and the rest.
func source(t *testing.T, path string) (header, body string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := bytes.Cut(text, []byte("*/"))
	if !found || !bytes.HasPrefix(before, []byte("/*")) {
		t.Fatalf("%s does not begin with a comment", path)
	}
	return string(before), string(after)
}
