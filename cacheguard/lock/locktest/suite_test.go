package locktest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/locktest"
	"github.com/cacheguard/cacheguard/internal/suitetest"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

const lease = 500 * time.Millisecond

// seat is one locker of a fleet, with all parts that a mutant can break.
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

// shared is the state that the mutants of one fleet share.
type shared struct {
	mu    sync.Mutex // guards the fields below
	count int
	names map[string]int
	holds map[string]*tenure.Hold
}

// add adds n to the count, and returns the count.
func (s *shared) add(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += n
	return s.count
}

// each returns true on every n-th call.
func (s *shared) each(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return s.count%n == 0
}

// memoryFleet returns three reference lockers on a table. Each has its own line, and all are broken
// in the same way.
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

// Caught is the mutant's name and the cases that must notice it.
func (m mutant) Caught() (name string, cases []string) { return m.name, m.caught }

func suite() suitetest.Suite[locktest.Fleet, mutant] {
	s := suitetest.Suite[locktest.Fleet, mutant]{
		Mutants: mutants(),
		Open:    memoryFleet,
		Tries: func(name string) int {
			if strings.HasPrefix(name, "exclusion:") || strings.HasPrefix(name, "linearizable:") {
				return 10
			}
			return 1
		},
		// Processes can't run on a bubble's clock.
		MaySkip: func(name string) bool {
			return strings.HasPrefix(name, "process:") || name == "token: none"
		},
	}
	for _, c := range locktest.Cases() {
		s.Cases = append(s.Cases, suitetest.Case[locktest.Fleet]{
			Name: c.Name, Protects: c.Rule,
			Run: func(r *suitetest.Recorder, f locktest.Fleet) { c.Run(r, f) },
		})
	}
	return s
}

func TestSuitePassesAGoodLocker(t *testing.T) { suite().Passes(t, mutant{}) }

func TestSuiteFailsBrokenLockers(t *testing.T) { suite().FailsMutants(t) }

// For each case there is a broken locker that fails it.
func TestEachCaseCatchesAMutant(t *testing.T) {
	var byProcesses []string
	for _, m := range processMutants {
		byProcesses = append(byProcesses, m.caught)
	}
	suite().EachCaseCatches(t, byProcesses...)
}

func TestCasesAreNamed(t *testing.T) { suite().CasesAreNamed(t) }

// If the machine was too busy for a lease, a case begins again with one that is twice as long, if
// the fleet can be opened with another lease. A locker that is always too slow fails all the same.
func TestLeaseThatIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tryFree := locktest.Cases()[slices.IndexFunc(locktest.Cases(), func(c locktest.Case) bool {
			return c.Name == "try: free"
		})]
		for enough, want := range map[time.Duration][]time.Duration{
			4 * time.Millisecond: {2 * time.Millisecond, 4 * time.Millisecond},
			time.Hour: {
				2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond,
				16 * time.Millisecond,
			},
		} {
			var leases []time.Duration
			var open func(lease time.Duration) locktest.Fleet
			open = func(lease time.Duration) locktest.Fleet {
				f, end := memoryFleet(mutant{mutate: func(s *seat) {
					s.locker.try = func(ctx context.Context, name string) (lock.Lock, error) {
						if lease < enough {
							return nil, errors.New("no answer in time")
						}
						return s.inner.TryLock(ctx, name)
					}
				}})
				t.Cleanup(end)
				f.Lease = lease
				f.Longer = func(lease time.Duration) locktest.Fleet {
					leases = append(leases, lease)
					return open(lease)
				}
				return f
			}
			r := suitetest.Record(func(r *suitetest.Recorder) {
				tryFree.Run(r, open(time.Millisecond))
			})
			if passes := enough < time.Hour; passes != (len(r.Failures) == 0) ||
				!slices.Equal(leases, want) {
				t.Errorf("needs %v: it began again with %v, want %v; failures %v", enough, leases,
					want, r.Failures)
			}
		}
	})
}

func TestFleetIsChecked(t *testing.T) {
	f, end := memoryFleet(mutant{})
	defer end()
	two, endless := f, f
	two.Lockers, endless.Lease = f.Lockers[:2], 0
	for _, f := range []locktest.Fleet{two, endless} {
		r := suitetest.Record(func(r *suitetest.Recorder) { locktest.Cases()[0].Run(r, f) })
		if len(r.Failures) == 0 {
			t.Errorf("a case passes with %d lockers and a lease of %v", len(f.Lockers), f.Lease)
		}
	}
}
