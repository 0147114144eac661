package protocol

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// scene has a first world, and says which events may happen from there on.
type scene struct {
	name       string
	processes  int
	keys       int
	turns      int   // slots for loads in each process; 0: there is no limit
	together   uint8 // the most callers of a flight
	valueTicks uint8 // the TTL of values; 0: forGood
	backoff    uint8 // ticks of the back-off after a failure
	writes     []verb
	start      func(*world)
	may        budget
	longest    uint8 // a miss follows for at most so many ticks; 0: there is no limit
	remembered bool  // the store keeps the marker that a result was for one caller only
	quiet      bool  // nothing disturbs the loads, so there is one load for each key
	batch      bool  // a call asks for all keys
	fails      bool  // all loads fail until the first write
	onError    bool  // a stale value is served only in place of an error
	large      bool  // messages don't carry values
	failClosed bool
	quickLook  bool          // nothing can happen during a look-up
	tells      map[told]bool // collects the events that misses are told, unless it is nil
	shadow     bool          // the second process is in shadow
	big        bool          // the scene takes long: see TestExplore
}

// found is the result of a search.
type found struct {
	states, depth int
	bad           string
	path          []event
}

// mostWorlds is the largest number of visited worlds. A scene with more worlds is treated as
// endless.
const mostWorlds = 3_000_000

type node struct {
	parent int32
	by     event
}

var seed = maphash.MakeSeed()

// key returns a hash of a world. Worlds that differ only in the order of their processes have the
// same key. Among a few million worlds, the chance that two different worlds have the same key is
// about one in a million, and each run draws another seed.
func (s *scene) key(w *world) uint64 {
	var all [1 + maxProcs]uint64
	all[0] = maphash.Comparable(seed, w.shared)
	for p := range s.all(w) {
		all[1+p] = maphash.Comparable(seed, w.procs[p])
	}
	first := 1
	if s.may.writes > 0 {
		first = 2 // process 0 has the writer, so it can't change places
	}
	slices.Sort(all[first : 1+s.processes])
	return maphash.Comparable(seed, all)
}

func (s *scene) first() (w world) {
	s.keys = max(s.keys, 1)
	if s.valueTicks == 0 {
		s.valueTicks = forGood
	}
	w.left, w.broken = s.may, s.fails
	for k := range w.origin {
		w.origin[k] = 1
	}
	if s.start != nil {
		s.start(&w)
	}
	return w
}

// open is a world that was reached, and from which no further step has been taken yet.
type open struct {
	run
	node int32
}

// opens is a list of open worlds. Its memory is used again for each depth.
type opens struct {
	parts []*[256]open
	n     int
}

func (l *opens) at(i int) *open { return &l.parts[i/len(l.parts[0])][i%len(l.parts[0])] }

// next returns room for one more world. The world is in the list when the caller has increased n.
func (l *opens) next() *open {
	if len(l.parts) == 0 || l.n == len(l.parts)*len(l.parts[0]) {
		l.parts = append(l.parts, new([256]open))
	}
	return l.at(l.n)
}

// explore visits every world that can be reached from the first world, the nearest first.
func (s *scene) explore() (is found) {
	var now, next opens
	now.next().run = run{scene: s, world: s.first()}
	now.n = 1
	seen := map[uint64]struct{}{s.key(&now.at(0).world): {}}
	nodes := []node{{parent: -1}}
	var events []event
	for ; now.n > 0; is.depth++ {
		if len(nodes) > mostWorlds {
			return found{
				states: len(nodes), depth: is.depth, bad: "tooManyWorlds",
				path: path(nodes, now.at(0).node),
			}
		}
		next.n = 0
		for i := range now.n {
			w := now.at(i)
			events = s.possible(&w.world, events[:0])
			some := events
			switch {
			case some[0].what == whats:
				w.atRest()
				some = some[1:]
			case some[0] == event{what: tick} && s.quiet:
				w.fail("notPushed")
			}
			if w.bad != "" {
				return found{
					states: len(nodes), depth: is.depth, bad: w.bad, path: path(nodes, w.node),
				}
			}
			for _, e := range some {
				r := next.next()
				r.run = w.run
				r.do(e)
				if r.check(); r.bad != "" {
					return found{
						states: len(nodes), depth: is.depth + 1, bad: r.bad,
						path: append(path(nodes, w.node), e),
					}
				}
				r.tidy()
				k := s.key(&r.world)
				if _, ok := seen[k]; ok {
					continue
				}
				seen[k] = struct{}{}
				nodes = append(nodes, node{parent: w.node, by: e})
				r.node = int32(len(nodes) - 1)
				next.n++
			}
		}
		now, next = next, now
	}
	is.states = len(nodes)
	return is
}

// possible lists the events that can happen. If all of them are optional, one event is put in front
// of the list: tick if a flight waits for time to pass. Otherwise the world is at rest, and the
// event in front is whats, which is no event.
func (s *scene) possible(w *world, events []event) []event {
	must := false
	events = append(events, event{what: whats})
	s.steps(w, func(e event, optional bool) {
		must = must || !optional
		events = append(events, e)
	})
	if must {
		return events[1:]
	}
	for p := range s.all(w) {
		for i := range w.procs[p].flights {
			if f := &w.procs[p].flights[i]; f.used && f.m.State == Following && w.now < f.timer {
				events[0] = event{what: tick}
				return events
			}
		}
	}
	return events
}

func path(nodes []node, n int32) (events []event) {
	for ; nodes[n].parent >= 0; n = nodes[n].parent {
		events = append(events, nodes[n].by)
	}
	slices.Reverse(events)
	return events
}

// TestExplore lets all possible events happen to Misses and Slots, in every order, within the
// bounds of each scene. Big scenes are explored only if CACHEGUARD_TEST is full, and without the
// race detector. It is slow, and it can find nothing here, because a scene runs on one goroutine.
func TestExplore(t *testing.T) {
	var big []string
	var all allTold
	t.Cleanup(func() { all.compare(t) })
	for _, s := range scenes {
		if s.big && (raceEnabled || !childproc.Full()) {
			big = append(big, s.name)
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s.tells = map[told]bool{}
			is := s.explore()
			all.add(s.tells, s.big)
			t.Logf("%s: %d states, %d steps deep, %.1f s", s.name, is.states, is.depth,
				time.Since(began).Seconds())
			if is.bad != "" {
				t.Errorf("fails by %q\n%s\nto replay:\n%s", is.bad, s.diagram(is.path),
					fmt.Sprint(is.path))
			}
		})
	}
	if len(big) == 0 {
		return
	}
	t.Run("big", func(t *testing.T) {
		if !childproc.Full() {
			t.Skip("skipped unless CACHEGUARD_TEST is full:", big)
		}
		t.Parallel()
		out, err := testWithoutRace(t, big, "-v")
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
	})
}
