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

// told is an event that a driver tells a miss, with the state of the miss and what it has at that
// time.
type told struct {
	state                       State
	ended, behind, solo, claims bool
	leased                      bool // the miss believes that it has the lease
	turn                        bool // the miss has a slot, and no load has taken it over
	load                        bool // the load of the miss runs
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

// tellsOf returns the told for an event that the explorer's driver tells the miss of a flight.
func tellsOf(f *flight, k Kind) told {
	m := &f.m
	return told{
		state: m.State, ended: m.Ended, behind: m.Behind, solo: m.Solo, claims: m.Claims,
		leased: m.Until > 0,
		turn:   f.group != 0 && !f.load.turn, load: f.load.runs, kind: k,
	}
}

// allTold has all events that were told in the scenes.
type allTold struct {
	mu    sync.Mutex // guards the fields below
	told  map[string]bool
	small int // how many explored scenes aren't big
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

// compare compares the events with the table of drivetest, which has every event of every scene.
// The scenes that aren't big have all these events by themselves. So if all of them were explored,
// the comparison also finds events that only the table has. Other tests compare the driver in
// package cacheguard with the same table.
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
