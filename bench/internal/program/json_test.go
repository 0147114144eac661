package program

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Every member that -json prints has an explicit name. The documentation of the command contains
// all these names, except for the members of plans.
func TestJSONIsDocumented(t *testing.T) {
	source, err := os.ReadFile("../../main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(source), "// # JSON\n")
	section, _, _ = strings.Cut(section, "// # Other libraries\n")
	documented := map[string]bool{}
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(section, -1) {
		documented[word] = true
	}
	if !found || len(documented) < 50 {
		t.Fatalf("the documentation has no section on JSON, or a short one: %q", section)
	}
	for _, printed := range []any{
		about{}, matchReport{}, contestResult{}, hitsRow{}, growthRow{}, growthTimes{}, tally{},
		expiryTally{}, outageTally{},
		handoverResults{}, handoverTally{}, aloneTally{}, lockTally{}, comparison{}, extent{},
		floorRatio{},
	} {
		for _, name := range members(t, printed) {
			if !documented[name] {
				t.Errorf("%T: %s is not documented", printed, name)
			}
		}
	}
	for _, plan := range []any{
		plan{}, runPlan{}, hitsPlan{}, growthPlan{}, expiryPlan{}, outagePlan{}, handoverPlan{},
		locksPlan{}, validation{}, calibration{},
	} {
		members(t, plan)
	}
}

// members returns the names under which a struct's fields are printed.
func members(t *testing.T, of any) (names []string) {
	t.Helper()
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
		if !f.IsExported() || f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "":
			t.Errorf("%T: %s has no name for JSON", of, f.Name)
		case name == "-":
			continue
		case f.Type == reflect.TypeFor[time.Duration]() && !strings.HasSuffix(name, "Nanos"):
			t.Errorf("%T: %s is a time, and its name %s doesn't say so", of, f.Name, name)
		}
		names = append(names, name)
	}
	return names
}
