package locktest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

const lease = 500 * time.Millisecond

// seat is one locker of a fleet, with all that a mutant can break.
type seat struct {
	table  *table
	shared *shared
	line   *line
	system *brokenSystem // between the locker and the line
	inner  *reference
	locker *broken // around it
	index  int
}

// pass lets d pass, unless the locker is closed.
func (s *seat) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.inner.keeper.Closed():
	}
}

// shared is what the mutants of one fleet remember.
type shared struct {
	mu    sync.Mutex // guards the rest
	count int
	names map[string]int
	holds map[string]*tenure.Hold
}

// add counts, and returns the count.
func (s *shared) add(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += n
	return s.count
}

// each says of every n-th call that it is one.
func (s *shared) each(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return s.count%n == 0
}

// memoryFleet is three reference lockers on a table, each on a line of its own, broken in the same
// way.
func memoryFleet(m mutant) (f locktest.Fleet, end func()) {
	t := newTable()
	f = locktest.Fleet{Lease: lease, Fenced: true, Reentrant: true, Steal: t.steal}
	sh := &shared{names: map[string]int{}, holds: map[string]*tenure.Hold{}}
	var seats []*seat
	for i := range 3 {
		s := &seat{table: t, shared: sh, line: &line{system: t}, index: i}
		s.system = &brokenSystem{system: s.line}
		s.inner = newReference(s.system, lease)
		s.locker = &broken{reference: s.inner}
		seats = append(seats, s)
		f.Lockers = append(f.Lockers, s.locker)
	}
	f.Cut, f.LoseReply = seats[0].line.Cut, seats[0].line.LoseReply
	for _, s := range seats {
		if m.mutate != nil {
			m.mutate(s)
		}
	}
	if m.harm != nil {
		m.harm(&f, t)
	}
	return f, func() {
		for _, s := range seats {
			s.inner.Close()
		}
	}
}

// needsProcesses are the cases that can't run on a bubble's clock.
func needsProcesses(c locktest.Case) bool { return len(c.Name) > 8 && c.Name[:8] == "process:" }

func TestSuitePassesAGoodLocker(t *testing.T) {
	for _, c := range locktest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			r := run(t, c, mutant{})
			for _, failure := range r.failures {
				t.Error(failure)
			}
			for _, line := range r.logs {
				t.Log(line)
			}
			if r.skipped != "" && !needsProcesses(c) && c.Name != "token: none" {
				t.Errorf("skipped: %s", r.skipped)
			}
		})
	}
}

func TestSuiteFailsBrokenLockers(t *testing.T) {
	cases := map[string]locktest.Case{}
	for _, c := range locktest.Cases() {
		cases[c.Name] = c
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			if len(m.caught) == 0 {
				t.Fatal("no case is named")
			}
			for _, name := range m.caught {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("there is no case %q", name)
				}
				r := run(t, c, m)
				for tries := 1; len(r.failures) == 0 && tries < triesOf(name); tries++ {
					r = run(t, c, m)
				}
				switch {
				case len(r.failures) == 0:
					t.Errorf("case %q passes %s", name, r.skipped)
				case !strings.Contains(r.failures[0], c.Rule):
					t.Errorf("case %q fails without naming its rule: %s", name, r.failures[0])
				default:
					t.Logf("%s: %s", name, r.failures[0])
				}
			}
		})
	}
}

// triesOf gives cases that need some luck to see a race more than one try.
func triesOf(name string) int {
	if strings.HasPrefix(name, "exclusion:") || strings.HasPrefix(name, "linearizable:") {
		return 10
	}
	return 1
}

// Each case is there because of a locker that it turns away.
func TestEachCaseCatchesAMutant(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants() {
		for _, name := range m.caught {
			caught[name] = true
		}
	}
	for _, m := range processMutants {
		caught[m.caught] = true
	}
	for _, c := range locktest.Cases() {
		if !caught[c.Name] {
			t.Errorf("no mutant is caught by case %q", c.Name)
		}
	}
}

func TestFleetIsChecked(t *testing.T) {
	f, end := memoryFleet(mutant{})
	defer end()
	two, endless := f, f
	two.Lockers, endless.Lease = f.Lockers[:2], 0
	for _, f := range []locktest.Fleet{two, endless} {
		r := &recorder{}
		r.record(func() { locktest.Cases()[0].Run(r, f) })
		if len(r.failures) == 0 {
			t.Errorf("a case passes with %d lockers and a lease of %v", len(f.Lockers), f.Lease)
		}
	}
}

func TestCasesAreNamed(t *testing.T) {
	var names []string
	for _, c := range locktest.Cases() {
		if c.Name == "" || c.Rule == "" {
			t.Errorf("case %q protects %q", c.Name, c.Rule)
		}
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(locktest.Cases()) {
		t.Error("two cases have one name")
	}
}

// run runs a case on a bubble's clock, so that waiting in vain costs nothing.
func run(t *testing.T, c locktest.Case, m mutant) *recorder {
	r := &recorder{}
	synctest.Test(t, func(*testing.T) {
		f, end := memoryFleet(m)
		defer end()
		r.record(func() { c.Run(r, f) })
	})
	return r
}

// recorder keeps what a case reports.
type recorder struct {
	mu       sync.Mutex // guards the rest
	failures []string
	logs     []string
	skipped  string
}

func (r *recorder) record(do func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		do()
	}()
	<-over
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
