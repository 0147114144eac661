package middleware_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// stage is the place where the handlers of a fleet run. It counts them, and has gates at which they
// wait for the test.
type stage struct {
	tb testing.TB

	mu                  sync.Mutex // guards the fields below
	runs, running, most int
	changed             chan struct{}
	gates               []*gate
}

func newStage(tb testing.TB) *stage { return &stage{tb: tb, changed: make(chan struct{})} }

// handler returns h on the stage.
func (s *stage) handler(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.change(func() {
			s.runs++
			s.running++
			s.most = max(s.most, s.running)
		})
		defer s.change(func() { s.running-- })
		h(w, r)
	}
}

func (s *stage) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// counts returns how many handlers have begun, how many of them run now, and how many ran at the
// same time at most.
func (s *stage) counts() (runs, running, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs, s.running, s.most
}

func (s *stage) String() string {
	runs, running, most := s.counts()
	return fmt.Sprintf("%d handlers have begun, %d run, at most %d did", runs, running, most)
}

// fresh resets the counts.
func (s *stage) fresh() {
	s.change(func() { s.runs, s.most = 0, s.running })
}

// wantRuns fails the test unless n handlers have begun.
func (s *stage) wantRuns(n int, when string) {
	s.tb.Helper()
	if runs, _, _ := s.counts(); runs != n {
		s.tb.Errorf("%s: %v; want %d begun", when, s, n)
	}
}

// wantFailures is wantRuns for a case in which the run fails while others wait. Then there is a
// second run. Each process that learns of the first failure only after the second run adds at most
// one more run. wantFailures returns the number of runs.
func (s *stage) wantFailures(processes int, when string) int {
	s.tb.Helper()
	runs, _, _ := s.counts()
	if runs < 2 || runs > 1+processes {
		s.tb.Errorf("%s: %v; want 2 to %d begun", when, s, 1+processes)
	}
	return runs
}

// awaitRunning returns when n handlers run at the same time.
func (s *stage) awaitRunning(n int) {
	s.tb.Helper()
	s.awaitCounts(fmt.Sprintf("%d that run", n), func() bool { return s.running == n })
}

// awaitRuns returns when n handlers have begun.
func (s *stage) awaitRuns(n int) {
	s.tb.Helper()
	s.awaitCounts(fmt.Sprintf("%d begun", n), func() bool { return s.runs == n })
}

func (s *stage) awaitCounts(want string, reached func() bool) {
	s.tb.Helper()
	timeout := time.After(longWait)
	for {
		s.mu.Lock()
		good, changed := reached(), s.changed
		s.mu.Unlock()
		if good {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			s.tb.Fatalf("after %v %v; want %s", longWait, s, want)
		}
	}
}

// gate is a place where handlers wait until the test opens it or ends.
type gate struct {
	once sync.Once
	done chan struct{}
}

func (s *stage) gate() *gate {
	g := &gate{done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates = append(s.gates, g)
	return g
}

func (g *gate) pass() { <-g.done }

func (g *gate) open() { g.once.Do(func() { close(g.done) }) }

// clear opens all gates.
func (s *stage) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		g.open()
	}
}
