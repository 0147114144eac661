package model_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	condition   = regexp.MustCompile(`(?m)^#(?:if|ifdef|ifndef|elif)\b.*$`)
	macro       = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
	mutantLine  = regexp.MustCompile(`(?m)^ {3}([A-Z][A-Z_]+): `)
	checkLine   = regexp.MustCompile(`(?m)^ {5}(invalid end state|[a-z]\w+) {2,}\S`)
	declaration = regexp.MustCompile(`(?m)^hidden byte (.*);$`)
)

// TestHeaders tests that the header of a model matches the model: every macro belongs to a run,
// every mutant must fail, and every check is made and can fail.
func TestHeaders(t *testing.T) {
	for _, path := range models(t) {
		t.Run(path, func(t *testing.T) {
			header, body := source(t, path)
			var used, failing, caught []string
			holds := false
			for _, r := range runs(t, path) {
				used = append(used, r.macros...)
				if r.fails == "" {
					holds = true
					continue
				}
				failing = append(failing, r.macros...)
				caught = append(caught, r.fails)
			}
			if !holds {
				t.Error("no run holds")
			}

			var tested []string
			for _, line := range condition.FindAllString(body, -1) {
				tested = append(tested, macro.FindAllString(line, -1)...)
			}
			sameNames(t, "macros of the runs", used, "macros of the model", tested)

			for _, m := range mutantLine.FindAllStringSubmatch(header, -1) {
				if !slices.Contains(failing, m[1]) {
					t.Errorf("mutant %s has no run that fails", m[1])
				}
			}

			var described []string
			for _, m := range checkLine.FindAllStringSubmatch(header, -1) {
				described = append(described, m[1])
			}
			sameNames(t, "checks that a mutant fails by", caught, "checks of the header", described)

			declared := []string{}
			for _, m := range declaration.FindAllStringSubmatch(body, -1) {
				declared = append(declared, strings.Split(m[1], ", ")...)
			}
			described = slices.DeleteFunc(described, func(s string) bool {
				return s == "invalid end state"
			})
			sameNames(t, "checks of the header", described, "checks of the model", declared)
			for _, d := range declared {
				if !strings.Contains(body, "assert(!"+d+")") {
					t.Errorf("%s is never asserted", d)
				}
			}
		})
	}
}

// TestDocNamesModels checks that the package documentation explains every model.
func TestDocNamesModels(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range models(t) {
		if !strings.Contains(string(doc), "//   - "+path+": ") {
			t.Errorf("doc.go does not explain %s", path)
		}
	}
}

func sameNames(t *testing.T, what string, a []string, other string, b []string) {
	t.Helper()
	a, b = sortedSet(a), sortedSet(b)
	if !slices.Equal(a, b) {
		t.Errorf("%s: %v\n%s: %v", what, a, other, b)
	}
}

func sortedSet(names []string) []string {
	names = slices.Sorted(slices.Values(names))
	return slices.Compact(names)
}

// TestJudge tests the judgement with outputs that look similar to other outputs.
func TestJudge(t *testing.T) {
	const checks = "\tassertion violations\t+\n\tinvalid end states\t+\n\n"
	const good = checks +
		"State-vector 60 byte, depth reached 136, errors: 0\n  1000 states, stored\n"
	const violated = "pan:1: assertion violated  !(secondLoad) (at depth 75)\n\nWarning: Search not completed\n" +
		checks + "State-vector 60 byte, depth reached 75, errors: 1\n   20 states, stored\n"
	const asleep = "pan:1: invalid end state (at depth 21)\n\nWarning: Search not completed\n" +
		checks + "State-vector 60 byte, depth reached 21, errors: 1\n   12 states, stored\n"
	rule := run{floor: 900}
	mutant := run{fails: "secondLoad"}

	for _, c := range []struct {
		name string
		run  run
		out  string
		want string // part of the error, empty if the run is as it must be
	}{
		{"rule holds", rule, good, ""},
		{"rule fails", rule, violated, `fails by "secondLoad"`},
		{"rule sleeps", rule, asleep, `fails by "invalid end state"`},
		{"nothing", rule, "", "no result"},
		{"killed half-way", rule, checks, "no result"},
		{"too few states", run{floor: 1000}, good, "more than 1000"},
		{"depth", rule, "error: max search depth too small\n" + good, "max search depth"},
		{"memory", rule, "pan: reached -DMEMLIM bound\n" + good, "MEMLIM"},
		{"not completed", rule, "Warning: Search not completed\n" + good, "not completed"},
		{
			"end states ignored", rule, strings.Replace(good, "end states\t+", "end states\t-", 1),
			"did not look",
		},
		{
			"unreached", rule,
			good + "unreached in proctype call\n\t/m/update.pml:87, state 41, \"lease = 0\"\n",
			"update.pml:87 lease = 0",
		},
		{
			"endless process", rule,
			good + "unreached in proctype call\n\t/m/update.pml:87, state 41, \"-end-\"\n", "",
		},
		{"mutant fails", mutant, violated, ""},
		{"mutant holds", mutant, good, `must fail by "secondLoad"`},
		{"mutant sleeps", mutant, asleep, `fails by "invalid end state"`},
		{
			"mutant of a longer name", run{fails: "secondLoadForWaiter"}, violated,
			`fails by "secondLoad", but`,
		},
		{"lost wake-up", run{fails: "invalid end state"}, asleep, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.run.judge(parseReport(c.out))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
