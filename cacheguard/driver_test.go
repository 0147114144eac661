package cacheguard

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cacheguard/cacheguard/internal/protocol"
)

// inHand is what a miss has beside its state.
func (m *miss[V]) inHand() (turn, load bool) { return m.turn != nil, m.work != nil }

// drive compares what runs do, in all tests of this package under CACHEGUARD_TEST=soak, with the
// table of what the driver in the protocol's explorer does.
type drive struct {
	states, events []string
	table          map[string]bool

	mu   sync.Mutex // guards what follows
	left map[any]protocol.Do
	bad  map[string]bool
}

// WatchRuns begins to compare. What it returns says what went wrong.
func WatchRuns() (wrong func() []string) {
	d, err := newDrive()
	if err != nil {
		return func() []string { return []string{err.Error()} }
	}
	watched.step, watched.done = d.step, d.done
	return d.wrong
}

func newDrive() (*drive, error) {
	text, err := os.ReadFile("../internal/protocol/testdata/tells.txt")
	if err != nil {
		return nil, err
	}
	d := &drive{table: map[string]bool{}, left: map[any]protocol.Do{}, bad: map[string]bool{}}
	for line := range strings.Lines(string(text)) {
		switch what, names, _ := strings.Cut(line, ": "); what {
		case "States":
			d.states = strings.Fields(names)
		case "Events":
			d.events = strings.Fields(names)
		default:
			d.table[strings.TrimSpace(line)] = true
		}
	}
	return d, nil
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

// step is told of a step, and what it says to do.
func (d *drive) step(m any, was protocol.Miss, e protocol.Event, do protocol.Do) {
	turn, load := m.(interface{ inHand() (turn, load bool) }).inHand()
	line := d.states[was.State]
	for _, is := range []struct {
		name string
		is   bool
	}{
		{"ended", was.Ended}, {"behind", was.Behind}, {"solo", was.Solo}, {"claims", was.Claims}, {"leased", was.Until > 0},
		{"turn", turn}, {"load", load},
	} {
		if is.is {
			line += " " + is.name
		}
	}
	line += ": " + d.events[e.Kind]
	d.mu.Lock()
	defer d.mu.Unlock()
	if was.State == protocol.Landed && e.Kind == protocol.End { // the others of its run have ended
		return
	}
	left := d.left[m]
	// A run reads all its mail before it does anything: that a lease is lost may come together with
	// the end of its load.
	ends := e.Kind == protocol.Returned || e.Kind == protocol.Unstorable || e.Kind == protocol.Failed
	if together := (ends || e.Kind == protocol.End) && left&protocol.CancelLoad != 0; !together && !d.table[line] {
		d.bad["told what the explorer never tells: "+line] = true
	}
	if together := ends && left&protocol.Seal != 0; !together && left != 0 && e.Kind != protocol.End {
		d.bad[fmt.Sprintf("%s comes before %b is done", line, left)] = true
	}
	if d.left[m] |= do; d.left[m] == 0 {
		delete(d.left, m)
	}
}

// done is told what is being done.
func (d *drive) done(m any, do protocol.Do) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left[m] &^= do; d.left[m] == 0 {
		delete(d.left, m)
	}
}

type handful struct{ turn, load bool }

func (h handful) inHand() (turn, load bool) { return h.turn, h.load }

// TestDrive shows what the comparison finds.
func TestDrive(t *testing.T) {
	granted, returned := protocol.Event{Kind: protocol.Granted}, protocol.Event{Kind: protocol.Returned}
	begins := protocol.Load | protocol.Renew
	asking, leading := protocol.Miss{State: protocol.Asking}, protocol.Miss{State: protocol.Leading, Until: 1}
	for name, c := range map[string]struct {
		do   func(d *drive)
		want string
	}{
		"nothing": {func(d *drive) {
			d.step(handful{turn: true}, asking, granted, 0)
			d.step(handful{}, leading, returned, 0)
		}, ""},
		"an answer that comes twice": {func(d *drive) {
			d.step(handful{turn: true}, asking, granted, 0)
			d.step(handful{load: true}, leading, granted, 0)
		}, "told what the explorer never tells: Leading leased load: Granted"},
		"the end of a load that was cancelled": {func(d *drive) {
			d.step(handful{}, protocol.Miss{State: protocol.Queued}, returned, 0)
		}, "told what the explorer never tells: Queued: Returned"},
		"a slot that is not given back": {func(d *drive) {
			d.step(handful{turn: true}, protocol.Miss{State: protocol.Following}, protocol.Event{Kind: protocol.Woken}, 0)
		}, "told what the explorer never tells: Following turn: Woken"},
		"a command that is not carried out": {func(d *drive) {
			m := &handful{turn: true}
			d.step(m, asking, granted, begins)
			d.done(m, protocol.Load)
			m.turn = false
			d.step(m, leading, returned, 0)
		}, "Leading leased: Returned comes before 1000000000000000 is done"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := newDrive()
			if err != nil {
				t.Fatal(err)
			}
			c.do(d)
			if got := strings.Join(d.wrong(), ", "); got != c.want {
				t.Errorf("finds %q, want %q", got, c.want)
			}
		})
	}
}
