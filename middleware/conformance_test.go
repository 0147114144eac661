package middleware_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Ages and dates must not depend on the time zone of the server. So the tests of this package run
// half a day away from Greenwich.
func init() { time.Local = time.FixedZone("nowhere", 11*3600+30*60) }

// conformance returns all shows, sorted by name.
func conformance() []show {
	shows := slices.Concat(
		storeShows(), fieldShows(), freshnessShows(), dateShows(), ageShows(), heuristicShows(),
		reuseShows(), varyShows(),
		validateShows(), updateShows(), headShows(), invalidateShows(), requestShows(),
		directiveShows(), staleShows(),
		targetedShows(), statusShows(), conditionShows(), rangeShows(), partShows(), postShows(),
	)
	// Maps have no order.
	slices.SortStableFunc(shows, func(a, b show) int { return strings.Compare(a.name, b.name) })
	return shows
}

// TestConformance tests rule by rule what testdata/rfc9111.tsv says about this cache.
func TestConformance(t *testing.T) {
	for _, sh := range conformance() {
		t.Run(sh.name, sh.run)
	}
}

// rule is one row of the table: a requirement of a specification, in the project's words, and the
// subtests that show it.
type rule struct {
	section string // a section of RFC 9111, or another RFC's number, a dash and its section
	level   string
	text    string
	tests   []string // if there are none, because says why
	because string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("testdata/rfc9111.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var rules []rule
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) != 4 || slices.Contains(cells, "") {
			t.Fatalf("line %d has not four filled cells: %q", i+1, line)
		}
		if i == 0 {
			continue // the names of the columns
		}
		r := rule{section: cells[0], level: cells[1], text: cells[2]}
		if why, ok := strings.CutPrefix(cells[3], "n/a: "); ok {
			r.because = why
		} else {
			r.tests = strings.Fields(cells[3])
		}
		rules = append(rules, r)
	}
	return rules
}

// TestConformanceTable compares the table with the subtests. Each row must name existing subtests,
// or say why there can't be any. Each subtest must be named in the table.
func TestConformanceTable(t *testing.T) {
	names := map[string]bool{}
	// go test -run accepts these names unchanged.
	clean := regexp.MustCompile(`^[0-9][0-9.-]*(/[a-z0-9_]+){1,2}$`)
	for _, sh := range conformance() {
		if !clean.MatchString(sh.name) {
			t.Errorf("subtest %q: such a name can't be run", sh.name)
		}
		if names[sh.name] {
			t.Errorf("subtest %q is there twice", sh.name)
		}
		names[sh.name] = true
	}
	sections := regexp.MustCompile(`^([1-5](\.[0-9]+)*|(5861|9110|9211|9213)-[0-9]+(\.[0-9]+)*)$`)
	levels := []string{"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "ought to", "contract"}
	named := map[string]bool{}
	said := map[string]bool{}
	for _, r := range readRules(t) {
		if !sections.MatchString(r.section) || !slices.Contains(levels, r.level) {
			t.Errorf("%q, %q: no such section or level", r.section, r.level)
		}
		if said[r.section+r.text] {
			t.Errorf("%s says twice: %s", r.section, r.text)
		}
		said[r.section+r.text] = true
		if len(r.tests) == 0 && r.because == "" {
			t.Errorf("%s, %q has no test, and no reason for that", r.section, r.text)
		}
		for _, test := range r.tests {
			name, ok := strings.CutPrefix(test, "TestConformance/")
			found := false
			for have := range names {
				if have == name || strings.HasPrefix(have, name+"/") {
					named[have], found = true, true
				}
			}
			if !ok || !found {
				t.Errorf("%s, %q names %s, which can't be run", r.section, r.text, test)
			}
		}
	}
	for name := range names {
		if !named[name] {
			t.Errorf("no row of the table names subtest %s", name)
		}
	}
}
