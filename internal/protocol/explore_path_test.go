package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// note is one line of a diagram.
type note struct {
	column int
	text   string
}

const storeColumn = maxProcs

func (r *run) note(column int, format string, args ...any) {
	r.notes = append(r.notes, note{column, fmt.Sprintf(format, args...)})
}

// letter returns the letter of a load in a diagram.
func letter(t token) rune {
	if t == 0 {
		return '-'
	}
	return 'a' + rune(t) - 1
}

// diagram shows the events of a path in columns, one for each process and one for the store.
func (s *scene) diagram(path []event) string {
	var b strings.Builder
	for p := range s.processes {
		fmt.Fprintf(&b, "%-52s", fmt.Sprintf("process %d", p))
	}
	b.WriteString("store, origin, network\n")
	w := s.first()
	for _, e := range path {
		r := run{scene: s, world: w, trace: true}
		column := int(e.p)
		if e.what >= arrive {
			column = storeColumn
		}
		r.note(column, "%s", r.describe(e))
		r.do(e)
		r.check()
		for _, n := range r.notes {
			column := min(n.column, s.processes)
			if r.now != w.now {
				n.text = fmt.Sprintf("%s: it is %d", n.text, r.now)
			}
			fmt.Fprintf(&b, "%s%s\n", strings.Repeat(fmt.Sprintf("%-52s", "."), column), n.text)
		}
		if r.bad != "" {
			fmt.Fprintf(&b, "*** %s\n", r.bad)
		}
		r.tidy()
		w = r.world
	}
	return b.String()
}

// describe returns a description of an event before it happens.
func (r *run) describe(e event) string {
	f := &r.procs[e.p].flights[min(int(e.i), maxFlights-1)]
	name := whatNames[e.what]
	switch e.what {
	case call:
		return fmt.Sprintf("call of key %d", e.i)
	case reach, repeat, lose:
		return fmt.Sprintf("f%d: %s %s %c", e.i, name, verbNames[f.op.kind.kind],
			letter(f.op.kind.load))
	case hear, hearTwice, loseMessage:
		m := r.procs[e.p].inbox[0]
		return fmt.Sprintf("%s: %v of %c", name, m.tells, letter(m.load))
	case arrive:
		c := r.net[e.i]
		return fmt.Sprintf("late: %s %c", verbNames[c.kind], letter(c.load))
	case write:
		return fmt.Sprintf("process 0 writes version %d: %s", r.origin[0]+1, verbNames[e.i])
	case updating, tick, evictValue, evictLease, reachWrite, replyWrite, loseWrite, cut, restore,
		crash, closing, lateReturn:
		return name
	}
	return fmt.Sprintf("f%d: %s", e.i, name)
}

// replay carries out the events of a printed path. It returns the last world and the checks that
// failed on the way.
func (s *scene) replay(t *testing.T, printed string) (w world, bad string) {
	t.Helper()
	w = s.first()
	for _, text := range strings.Fields(strings.Trim(printed, "[]\n\t ")) {
		name, rest, _ := strings.Cut(text, ".")
		what := slices.Index(whatNames[:], name)
		var e event
		if _, err := fmt.Sscanf(rest, "%d.%d", &e.p, &e.i); err != nil || what < 0 {
			t.Fatalf("%q is no event", text)
		}
		e.what = uint8(what)
		if !slices.Contains(s.possible(&w, nil), e) {
			t.Fatalf("%v can't happen now", e)
		}
		r := run{scene: s, world: w}
		r.do(e)
		if r.check(); r.bad != "" {
			return r.world, r.bad
		}
		r.tidy()
		w = r.world
	}
	r := run{scene: s, world: w}
	if e := s.possible(&w, nil); e[0].what == whats {
		r.atRest()
	}
	return w, r.bad
}

// TestReplay replays a printed path. In this path a fill arrives twice, and the key is invalidated
// between the two copies.
func TestReplay(t *testing.T) {
	i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == "late copies" })
	const printed = "[call.0.0 reach.0.0 reply.0.0 load.0.0 repeat.0.0 arrive.0.0 write.0.7 reachWrite.0.0 reach.0.0 reply.0.0]"
	w, bad := scenes[i].replay(t, printed)
	if bad != "" || w.slots[0] != (Slot{}) || w.procs[0].flights[0].used {
		t.Errorf("%q, %+v, %+v; want the call answered and nothing stored", bad, w.slots[0],
			w.procs[0].flights[0])
	}
	w, bad = scenes[i].replay(t,
		strings.TrimSuffix(printed, " reachWrite.0.0 reach.0.0 reply.0.0]"))
	if bad != "" || w.slots[0].Frame == "" {
		t.Errorf("%q, %+v; want the value stored by the copy", bad, w.slots[0])
	}
	var events []event
	for _, what := range []uint8{call, reach, arrives} {
		events = append(events, event{what: what})
	}
	shown := scenes[i].diagram(events)
	for _, want := range []string{
		"process 0", "store, origin, network", "call of key 0",
		"f0 Asking, Granted -> Leading: Load Renew", "lease of a",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the diagram doesn't show %q:\n%s", want, shown)
		}
	}
}
