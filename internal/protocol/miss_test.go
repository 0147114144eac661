package protocol

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/steps.txt anew")

const tableTTL = 10 * time.Second

// misses are misses with different fields, apart from their state. The first one is called plain.
var misses = []struct {
	name string
	set  func(*Miss)
}{
	{"", func(*Miss) {}},
	{"ended", func(m *Miss) { m.Ended = true }},
	{"last restart", func(m *Miss) { m.Restarts = MaxRestarts }},
	{"no restart left", func(m *Miss) { m.Restarts = MaxRestarts + 1 }},
	{"reads, stale", func(m *Miss) { m.Reads, m.Seen = true, Meanwhile }},
	{"reads, soft, stale", func(m *Miss) { m.Reads, m.Soft, m.Seen = true, true, Meanwhile }},
	{"fails closed", func(m *Miss) { m.FailClosed = true }},
	{"behind", func(m *Miss) { m.Behind, m.Seen = true, Meanwhile }},
	{"solo", func(m *Miss) { m.Solo = true }},
	{"apart", func(m *Miss) { m.Apart = true }},
	{"own", func(m *Miss) { m.Own = true }},
	{"unseen", func(m *Miss) { m.Unseen = true }},
	{"down", func(m *Miss) { m.Down = true }},
	{"down, behind", func(m *Miss) { m.Down, m.Behind = true, true }},
	{"down, fails closed", func(m *Miss) { m.Down, m.FailClosed = true, true }},
	{"down, reads, stale", func(m *Miss) { m.Down, m.Reads, m.Seen = true, true, OnError }},
	{"claims", func(m *Miss) { m.Claims = true }},
	{"claims, down", func(m *Miss) { m.Claims, m.Down = true, true }},
	{"lease over", func(m *Miss) { m.Until = 0 }},
}

// events returns all events that a miss can be told, with the values of their fields, and their
// names.
func events() (all []Event, called []string) {
	add := func(name string, e Event) { all, called = append(all, e), append(called, name) }
	for k := range kinds {
		e := Event{Kind: k, Now: 2 * time.Second, Sent: time.Second, Load: id(7)}
		switch k {
		case Granted:
			add("Granted", e)
			e.Now = e.Sent + tableTTL
			add("Granted too late", e)
		case Unrenewed:
			add("Unrenewed", e)
			e.Sent = tableTTL
			add("Unrenewed at the end", e)
		case Value, Filled:
			for u := Nothing; u <= Passing; u++ {
				e.Use, e.Mine = u, false
				add(fmt.Sprintf("%v %v", k, u), e)
				e.Mine = true
				add(fmt.Sprintf("%v %v, awaited", k, u), e)
			}
		case Outcome, Over:
			for l := Failure; l <= Unknown; l++ {
				e.Left = l
				add(fmt.Sprintf("%v %v", k, l), e)
			}
		default:
			add(k.String(), e)
		}
	}
	return all, called
}

// in returns a miss in a state, with the fields that it has when it gets there.
func in(s State, set func(*Miss)) Miss {
	m := Miss{Config: Config{LeaseTTL: tableTTL}, State: s}
	m.Turn = s == Asking
	if s == Leading {
		m.Until = tableTTL
	}
	set(&m)
	return m
}

func answer(m Miss, e Event) string {
	was := m
	do, landing := m.Step(e)
	if m == was && do == 0 {
		return "-"
	}
	text := fmt.Sprintf("%v: %v", m.State, do)
	if landing != NoLanding {
		text += " " + strings.TrimPrefix(landing.String(), "Land")
	}
	if m.Restarts != was.Restarts {
		text += " (a restart)"
	}
	return text
}

// TestTable compares what a miss in each state does at each event with the table in testdata. The
// table leaves out events that change nothing. A miss that isn't plain is left out if it does the
// same as the plain miss.
func TestTable(t *testing.T) {
	var got bytes.Buffer
	got.WriteString(
		"What a miss does, by its state and what it is told. What isn't here changes nothing.\n")
	all, called := events()
	for s := Begun; s <= Landed; s++ {
		fmt.Fprintf(&got, "\n%v\n", s)
		for i, e := range all {
			plain := ""
			for n, kind := range misses {
				text := answer(in(s, kind.set), e)
				if n == 0 {
					plain = text
				} else if text == plain {
					continue
				}
				if text == "-" && n == 0 {
					continue
				}
				name := called[i]
				if kind.name != "" {
					name += " (" + kind.name + ")"
				}
				fmt.Fprintf(&got, "  %-42s %s\n", name, strings.TrimSpace(text))
			}
		}
	}
	const file = "testdata/steps.txt"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	have, had := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(have), len(had)) {
		a, b := "", ""
		if i < len(have) {
			a = have[i]
		}
		if i < len(had) {
			b = had[i]
		}
		if a != b {
			t.Fatalf("line %d is\n%s\nand in %s\n%s\n(go test -run TestTable -update writes it anew)",
				i+1, a, file, b)
		}
	}
}

// TestRandomSteps tells misses random events in random order.
func TestRandomSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		steps := make([]byte, 3+r.IntN(60))
		for i := range steps {
			steps[i] = byte(r.Uint32())
		}
		if err := orderly(steps); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzMiss(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 3, 19, 22, 25})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if err := orderly(steps); err != nil {
			t.Error(err)
		}
	})
}

// orderly checks that a miss gives back everything that it has taken, and only once, whatever
// events it is told.
func orderly(steps []byte) error {
	if len(steps) < 2 {
		return nil
	}
	all, called := events()
	m := in(Begun, misses[int(steps[0])%len(misses)].set)
	m.Soft = steps[1]&1 != 0
	var path strings.Builder
	var waitsForTurn, turn, load, leased, landed bool
	for _, b := range steps[2:] {
		was, i := m, int(b)%len(all)
		do, landing := m.Step(all[i])
		fmt.Fprintf(&path, "\n%v, %s -> %s", was.State, called[i], answer(was, all[i]))
		wrong := func(what string) error { return fmt.Errorf("%s:%s", what, path.String()) }
		has := func(d Do) bool { return do&d != 0 }
		if was.State == Landed && (do != 0 || landing != 0 || m.State != Landed) {
			return wrong("a landed miss does something")
		}
		if was.State == Queued || was.State == Spared {
			waitsForTurn = waitsForTurn && all[i].Kind != Turned && all[i].Kind != Refused
			turn = turn || all[i].Kind == Turned
		}
		// An unseen miss has its slot before it begins.
		turn = turn || was.Unseen && was.State == Begun && m.State == Asking
		if was.State == Asking && all[i].Kind == Granted {
			leased = true
		}
		if was.State == Leading || was.State == Alone {
			switch all[i].Kind {
			case Returned, Unstorable, Failed:
				load = false
			case Taken:
				leased = false
			case Refused:
				load = load && was.State == Leading
			}
		}
		switch {
		case has(EndTurn) && !turn:
			return wrong("a turn is given back that it doesn't have")
		case has(CancelLoad) && !load:
			return wrong("no load to cancel")
		case has(Load) && (load && !has(CancelLoad) || !turn && !m.Claims):
			return wrong("a load begins without a turn, or beside another one")
		case has(EndTurn) && has(Load):
			return wrong("the turn is the load's and given back")
		case has(TakeTurn) && turn && !has(EndTurn):
			return wrong("a second turn is taken")
		case has(Land) != (m.State == Landed && was.State != Landed) ||
			has(Land) != (landing != NoLanding):
			return wrong("it lands without a landing, or the other way round")
		case has(Land) && landed:
			return wrong("it lands twice")
		case has(Fill) && !leased && !m.Claims, has(Conclude) && was.State != Leading:
			return wrong("the store is told of a load without a lease")
		}
		landed = landed || has(Land)
		waitsForTurn = (waitsForTurn || has(TakeTurn)) && !has(Land)
		turn = turn && !has(EndTurn) && !has(Load)
		load = load && !has(CancelLoad) || has(Load)
		leased = leased && !has(Release) && !has(Fill) && !has(Conclude)
		switch {
		case m.Turn != turn:
			return wrong("it doesn't know whether it has a turn")
		case m.Turn && m.State != Asking:
			return wrong("it has a turn in hand and isn't asking")
		case load != (m.State == Leading || m.State == Alone):
			return wrong("a load runs that nobody waits for, or the other way round")
		case waitsForTurn != (m.State == Queued || m.State == Spared):
			return wrong("it waits for a turn that it hasn't asked for, or the other way round")
		// If a miss cancels a write, the writer releases the lease.
		case m.State == Landed && leased && !has(CancelLoad):
			return wrong("it leaves a lease behind")
		}
	}
	return nil
}
