package lab

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// verdicts are the verdicts of runs for which only a stage and a fault were chosen.
type verdicts struct {
	mu sync.Mutex // guards of
	of map[string]string
}

func linkOf(stage, fault string) string { return "stage=" + stage + "&fault=" + fault }

func (v *verdicts) note(s Settings, verdict string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[linkOf(s.Stage, string(s.Fault))] = verdict
}

// rowWithRun matches a row in a table of the README: a link to a run, and at its end the result of
// the run.
var rowWithRun = regexp.MustCompile(`(?m)^\|.*\]\(http://localhost:8080/\?([^)]*)\).*\| (.*) \|$`)

// checkReadme checks that each row of the README contains the verdict of its run.
func (v *verdicts) checkReadme(t *testing.T) {
	if t.Failed() {
		return
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := rowWithRun.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 20 {
		t.Errorf("the README has %d rows with a run", len(rows))
	}
	for _, row := range rows {
		q, err := url.ParseQuery(row[1])
		if err != nil || len(q) != 2 {
			t.Errorf("the link %s: %v", row[1], err)
			continue
		}
		verdict, ran := v.of[linkOf(q.Get("stage"), q.Get("fault"))]
		if len(v.of) < 20 && !ran {
			continue // only some were run
		}
		if !ran || !strings.Contains(verdict, row[2]) {
			t.Errorf("the README says of %s: %s\nit ran: %v, and said: %s", row[1], row[2], ran,
				verdict)
		}
	}
}
