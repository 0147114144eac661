// Package suitetest tests conformance suites, such as storetest and locktest. It tests three
// things: a correct implementation passes each case, each mutant fails the cases in its list, and
// each case is in the list of a mutant.
package suitetest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Case is one case of a suite. It tests an F.
type Case[F any] struct {
	Name     string
	Protects string // the text of the case when it fails
	Run      func(r *Recorder, f F)
}

// Mutant is a way to break an implementation, with the cases that must fail.
type Mutant interface {
	Caught() (name string, cases []string)
}

// Suite is a suite under test. All fields are required.
type Suite[F any, M Mutant] struct {
	Cases   []Case[F]
	Mutants []M
	Open    func(m M) (f F, end func()) // the zero M breaks nothing

	// Tries returns the number of tries of a case. A case that finds a race only by chance has more
	// than one try.
	Tries func(name string) int

	// MaySkip has the cases that a correct implementation may skip.
	MaySkip func(name string) bool
}

// Passes tests that a correct implementation, or a harmless mutant, passes each case.
func (s Suite[F, M]) Passes(t *testing.T, m M) {
	for _, c := range s.Cases {
		t.Run(c.Name, func(t *testing.T) {
			r := s.run(t, c, m)
			for _, failure := range r.Failures {
				t.Error(failure)
			}
			for _, line := range r.logs {
				t.Log(line)
			}
			if r.skipped != "" && !s.MaySkip(c.Name) {
				t.Errorf("skipped: %s", r.skipped)
			}
		})
	}
}

// FailsMutants tests that each mutant fails the cases in its list.
func (s Suite[F, M]) FailsMutants(t *testing.T) {
	for _, m := range s.Mutants {
		name, caught := m.Caught()
		t.Run(name, func(t *testing.T) {
			if len(caught) == 0 {
				t.Fatal("no case is named")
			}
			for _, name := range caught {
				s.Fails(t, name, s.Tries(name), func(c Case[F]) *Recorder { return s.run(t, c, m) })
			}
		})
	}
}

// Fails tests that a case fails at least once in this number of tries.
func (s Suite[F, M]) Fails(t *testing.T, name string, tries int, run func(c Case[F]) *Recorder) {
	t.Helper()
	i := slices.IndexFunc(s.Cases, func(c Case[F]) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	c := s.Cases[i]
	r := run(c)
	for n := 1; len(r.Failures) == 0 && n < tries; n++ {
		r = run(c)
	}
	switch {
	case len(r.Failures) == 0:
		t.Errorf("case %q passes %s", c.Name, r.skipped)
	case !strings.Contains(r.Failures[0], c.Protects):
		t.Errorf("case %q fails without naming what it protects: %s", c.Name, r.Failures[0])
	default:
		t.Logf("%s: %s", c.Name, r.Failures[0])
	}
}

// EachCaseCatches tests that each case is in the list of a mutant, or in elsewhere, which lists the
// cases with mutants in other tests.
func (s Suite[F, M]) EachCaseCatches(t *testing.T, elsewhere ...string) {
	caught := map[string]bool{}
	for _, name := range elsewhere {
		caught[name] = true
	}
	for _, m := range s.Mutants {
		_, cases := m.Caught()
		for _, name := range cases {
			caught[name] = true
		}
	}
	for _, c := range s.Cases {
		if !caught[c.Name] {
			t.Errorf("no mutant is caught by case %q", c.Name)
		}
	}
}

// CasesAreNamed tests that each case has a unique name and a text for what it protects.
func (s Suite[F, M]) CasesAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range s.Cases {
		if c.Name == "" || c.Protects == "" {
			t.Errorf("case %q protects %q", c.Name, c.Protects)
		}
		if seen[c.Name] {
			t.Errorf("two cases have the name %q", c.Name)
		}
		seen[c.Name] = true
	}
}

// run runs a case on a bubble's clock, so that a wait in vain takes no real time.
func (s Suite[F, M]) run(t *testing.T, c Case[F], m M) (r *Recorder) {
	synctest.Test(t, func(*testing.T) {
		f, end := s.Open(m)
		defer end()
		r = Record(func(r *Recorder) { c.Run(r, f) })
	})
	return r
}
