package protocol

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// told is an event that a driver tells a miss in a state, with what the miss has in hand at that
// time.
type told struct {
	state                       State
	ended, behind, solo, claims bool
	leased                      bool // as far as it knows
	turn                        bool // a slot is in its hand
	load                        bool // its load runs
	kind                        Kind
}

func (t told) String() string {
	var b strings.Builder
	b.WriteString(t.state.String())
	for _, is := range []struct {
		name string
		is   bool
	}{
		{"ended", t.ended},
		{"behind", t.behind},
		{"solo", t.solo},
		{"claims", t.claims},
		{"leased", t.leased},
		{"turn", t.turn},
		{"load", t.load},
	} {
		if is.is {
			b.WriteString(" " + is.name)
		}
	}
	fmt.Fprintf(&b, ": %v", t.kind)
	return b.String()
}

// tellsOf returns the events that the driver in the explorer's world tells a flight.
func tellsOf(f *flight, k Kind) told {
	m := &f.m
	return told{
		state: m.State, ended: m.Ended, behind: m.Behind, solo: m.Solo, claims: m.Claims,
		leased: m.Until > 0,
		turn:   f.group != 0 && !f.load.turn, load: f.load.runs, kind: k,
	}
}

// allTold has the events that were told in any scene.
type allTold struct {
	mu    sync.Mutex // guards what follows
	told  map[string]bool
	small int // scenes that aren't big
}

func (a *allTold) add(all map[told]bool, big bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told == nil {
		a.told = map[string]bool{}
	}
	if !big {
		a.small++
	}
	for t := range all {
		a.told[t.String()] = true
	}
}

// compare compares with the table of drivetest, which has all that any scene has. The scenes that
// aren't big have all of it by themselves. So the table is compared in both directions wherever
// they are explored. Tests compare what the driver in package cacheguard does with the same table.
func (a *allTold) compare(t *testing.T) {
	var got bytes.Buffer
	got.WriteString("What a driver tells a miss, by its state and what it has in hand.\n")
	fmt.Fprintf(&got, "States: %s\nEvents: %s\n\n", strings.Join(names()["State"], " "),
		strings.Join(names()["Kind"][:kinds], " "))
	var lines []string
	for line := range a.told {
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(x, y string) int {
		at := func(line string) int {
			return slices.Index(names()["State"],
				strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ':' })[0])
		}
		if d := at(x) - at(y); d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	for _, line := range lines {
		got.WriteString(line + "\n")
	}
	const file = "drivetest/tells.txt"
	all := a.small == len(slices.DeleteFunc(slices.Clone(scenes), func(s scene) bool {
		return s.big
	}))
	if *update && all {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	had := strings.Split(string(want), "\n")
	for _, line := range lines {
		if !slices.Contains(had, line) {
			t.Errorf("%s doesn't have %q (go test -run TestExplore -update writes it anew)", file,
				line)
		}
	}
	if !all || t.Failed() || bytes.Equal(got.Bytes(), want) {
		return
	}
	for _, line := range had {
		if !strings.Contains(got.String(), line+"\n") {
			t.Errorf("%s has %q, which no small scene has", file, line)
		}
	}
	t.Errorf("%s is not what the scenes have (go test -run TestExplore -update writes it anew)",
		file)
}
