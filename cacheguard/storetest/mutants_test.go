package storetest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
)

// mutant is a way to break a store, and the cases that must notice.
type mutant struct {
	name   string
	caught []string
	mutate func(b *broken)
	harm   func(f *storetest.Fleet, bs []*broken) // what is done to the store from outside
}

// fleet is a memstore in two processes, both broken in the same way.
func fleet(m mutant) (storetest.Fleet, func()) {
	inner, shared := memstore.New(memstore.Options{}), newMemory()
	f := storetest.Fleet{}
	var bs []*broken
	for i := range 2 {
		b := &broken{Store: inner, memory: shared, process: i}
		if m.mutate != nil {
			m.mutate(b)
		}
		bs = append(bs, b)
		f.Stores = append(f.Stores, b)
	}
	f.WrongType = func(k cacheguard.Key) { mustPut(inner, k, nil) }
	f.LoseLease = func(k cacheguard.Key) { mustRelease(inner, k, shared.last(k).Token) }
	f.SpoilLease = f.LoseLease // what is no lease is as good as none
	f.LoseMessages = func() {
		now, _ := inner.InvalidateTags(ctx, "of which nobody knows", nil)
		shared.tellAll(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: now})
	}
	if m.harm != nil {
		m.harm(&f, bs)
	}
	return f, func() { inner.Close() }
}

func TestSuitePassesAGoodStore(t *testing.T) { passesAll(t, mutant{}) }

// A store may keep generations apart from values, and say them only to those who ask.
func TestSuitePassesAStoreThatMustBeAskedForGenerations(t *testing.T) {
	passesAll(t, mutant{mutate: func(b *broken) {
		onValue(func(*broken, cacheguard.Key, []string, cacheguard.Generations) cacheguard.Generations { return nil })(b)
		onGetManyTags(func(*broken, string, []string, cacheguard.Generations) cacheguard.Generations { return nil })(b)
	}})
}

func passesAll(t *testing.T, m mutant) {
	for _, c := range storetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			r := run(t, c, m)
			for _, failure := range r.failures {
				t.Error(failure)
			}
			if r.skipped != "" {
				t.Errorf("skipped: %s", r.skipped)
			}
		})
	}
}

func TestSuiteFailsBrokenStores(t *testing.T) {
	cases := map[string]storetest.Case{}
	for _, c := range storetest.Cases() {
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
				if len(r.failures) == 0 {
					t.Errorf("case %q passes", name)
				} else if !strings.Contains(r.failures[0], c.Promise) {
					t.Errorf("case %q fails without naming its promise: %s", name, r.failures[0])
				}
			}
		})
	}
}

// triesOf gives cases that need some luck to see a race more than one try.
func triesOf(name string) int {
	if strings.HasPrefix(name, "together") {
		return 30
	}
	return 1
}

// Each case is there because of a store that it turns away.
func TestEachCaseCatchesAMutant(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants() {
		for _, name := range m.caught {
			caught[name] = true
		}
	}
	for _, c := range storetest.Cases() {
		if !caught[c.Name] {
			t.Errorf("no mutant is caught by case %q", c.Name)
		}
	}
}

func TestCasesAreNamed(t *testing.T) {
	var names []string
	for _, c := range storetest.Cases() {
		if c.Name == "" || c.Promise == "" {
			t.Errorf("case %q protects %q", c.Name, c.Promise)
		}
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(storetest.Cases()) {
		t.Error("two cases have one name")
	}
}

func TestFleetOfOneIsRefused(t *testing.T) {
	s := memstore.New(memstore.Options{})
	r := &recorder{}
	r.record(func() { storetest.Cases()[0].Run(r, storetest.Fleet{Stores: []cacheguard.Store{s}}) })
	if len(r.failures) == 0 {
		t.Error("a case passes with one process")
	}
}

// run runs a case on a bubble's clock, so that waiting in vain costs nothing.
func run(t *testing.T, c storetest.Case, m mutant) *recorder {
	r := &recorder{}
	synctest.Test(t, func(*testing.T) {
		f, closeFleet := fleet(m)
		defer closeFleet()
		r.record(func() { c.Run(r, f) })
	})
	return r
}

// recorder keeps what a case reports.
type recorder struct {
	mu       sync.Mutex // guards the rest
	failures []string
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

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}

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
