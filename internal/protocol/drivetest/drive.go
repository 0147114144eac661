// Package drivetest compares the steps of real runs of package cacheguard, in any test, with the
// steps of the driver in the protocol's explorer.
package drivetest

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cacheguard/cacheguard/internal/protocol"
)

// tells lists the events that the explorer's driver tells a miss, by the miss's state and by what
// the miss has in hand. The explorer's tests write this list.
//
//go:embed tells.txt
var tells string

// Watch runs tests and compares all steps of their runs. It returns the exit code of the tests, or
// 1 if a run has done a step that the explorer's driver never does. Many tests reach rare steps
// only by chance. An hour of tests usually finds a step that the explorer lacks.
func Watch(run func() (code int)) (code int) {
	d := newDrive()
	protocol.Watched.Step, protocol.Watched.Done = d.step, d.done
	code = run()
	for _, what := range d.wrong() {
		fmt.Fprintln(os.Stderr, "a run and the explorer's driver differ:", what)
		code = max(code, 1)
	}
	return code
}

// drive compares steps of runs with the table.
type drive struct {
	states, events []string
	table          map[string]bool

	mu   sync.Mutex // guards the fields below
	left map[any]protocol.Do
	bad  map[string]bool
	seen map[string]bool // the lines of the table that were told
}

func newDrive() *drive {
	d := &drive{
		table: map[string]bool{}, left: map[any]protocol.Do{}, bad: map[string]bool{},
		seen: map[string]bool{},
	}
	for line := range strings.Lines(tells) {
		switch what, names, _ := strings.Cut(line, ": "); what {
		case "States":
			d.states = strings.Fields(names)
		case "Events":
			d.events = strings.Fields(names)
		default:
			d.table[strings.TrimSpace(line)] = true
		}
	}
	return d
}

func (d *drive) wrong() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what := range d.bad {
		all = append(all, what)
	}
	slices.Sort(all)
	return all
}

// step records a step of a miss and the actions that the step requests.
func (d *drive) step(
	m any, had protocol.InHand, was protocol.Miss, e protocol.Event, do protocol.Do,
) {
	line := d.states[was.State]
	for _, is := range []struct {
		name string
		is   bool
	}{
		{"ended", was.Ended}, {"behind", was.Behind}, {"solo", was.Solo}, {"claims", was.Claims},
		{"leased", was.Until > 0},
		{"turn", had.Turn}, {"load", had.Load},
	} {
		if is.is {
			line += " " + is.name
		}
	}
	line += ": " + d.events[e.Kind]
	d.mu.Lock()
	defer d.mu.Unlock()
	// A run that stops passes End to all its misses, also to those that have landed.
	if was.State == protocol.Landed && e.Kind == protocol.End {
		return
	}
	if d.table[line] {
		d.seen[line] = true
	}
	left := d.left[m]
	// A run reads all its mail before it does anything. So the loss of a lease and the end of its
	// load may come together.
	ends := e.Kind == protocol.Returned || e.Kind == protocol.Unstorable ||
		e.Kind == protocol.Failed
	if together := (ends || e.Kind == protocol.End) && left&protocol.CancelLoad != 0; !together &&
		!d.table[line] {
		d.bad["told what the explorer never tells: "+line] = true
	}
	if together := ends && left&protocol.Seal != 0; !together && left != 0 &&
		e.Kind != protocol.End {
		d.bad[fmt.Sprintf("%s comes before %b is done", line, left)] = true
	}
	if d.left[m] |= do; d.left[m] == 0 {
		delete(d.left, m)
	}
}

// done records an action that a run performs.
func (d *drive) done(m any, do protocol.Do) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left[m] &^= do; d.left[m] == 0 {
		delete(d.left, m)
	}
}
