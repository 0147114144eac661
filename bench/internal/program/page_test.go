package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// The page has a row for each contender in both tables, marks what failed and says why, and its
// prose wraps.
func TestPage(t *testing.T) {
	redistest.Start(t) // this skips the test without a redis-server, because the page needs one
	var page string
	var rows map[string][]string // by their first cell
	inOneOf(t, 3, func() (wrong []string) {
		var code int
		var stderr string
		code, page, stderr = bench(t, "page", "-contenders", "none,cacheguard", "-processes", "2",
			"-callers", "3", "-lock-ttl", "2s", "-repeat", "1", "-hits", "20ms")
		if code != 0 {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
		rows = map[string][]string{}
		for line := range strings.Lines(page) {
			line = strings.TrimSuffix(line, "\n")
			if name, cells, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok &&
				strings.HasPrefix(line, "| ") {
				name, _, _ = strings.Cut(name, ",")
				rows[name] = append(rows[name], cells)
			} else if len(line) > 100 {
				t.Errorf("a line of %d columns: %s", len(line), line)
			}
		}
		for _, name := range []string{"none", "cacheguard"} {
			if len(rows[name]) != 2 {
				t.Fatalf("%s has %d rows in\n%s", name, len(rows[name]), page)
			}
		}
		scenarios := strings.Split(strings.TrimSuffix(rows["none"][0], " |"), " | ")
		if len(scenarios) != len(scenarioNames()) {
			t.Fatalf("none does %q", rows["none"][0])
		}
		if !strings.Contains(scenarios[0], "*6 / ") { // a process that is late finds the value
			wrong = append(wrong, fmt.Sprintf("none does %q", rows["none"][0]))
		}
		return wrong
	})
	if !strings.Contains(page, "- none: cold (loads more than once);") ||
		!strings.Contains(page, "- **cacheguard**: with its defaults") {
		t.Errorf("it says\n%s", page)
	}
	if rows["none"][1] != " 1 | 1 |" || strings.Contains(rows["cacheguard"][1], "-") {
		t.Errorf("hits: %q, %q", rows["none"], rows["cacheguard"])
	}
}

// Items of a list are indented, and a word that is longer than a line gets its own line.
func TestWrapped(t *testing.T) {
	long := strings.Repeat("x", 120)
	want := "- " + strings.TrimSpace(strings.Repeat("word ", 19)) + "\n  word word\n"
	if got := wrapped("- ", strings.Repeat("word ", 21)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := wrapped("", "a "+long+" b"); got != "a\n"+long+"\nb\n" {
		t.Errorf("%q", got)
	}
}
