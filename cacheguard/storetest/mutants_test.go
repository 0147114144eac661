package storetest_test

import (
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/storetest"
	"github.com/cacheguard/cacheguard/internal/suitetest"
)

// mutant is a way to break a store, with the cases that must notice it.
type mutant struct {
	name   string
	caught []string
	mutate func(b *broken)
	harm   func(f *storetest.Fleet, bs []*broken) // damage to the store from outside
}

// fleet returns a memstore in two processes, both broken in the same way.
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
	f.SpoilLease = f.LoseLease // a damaged lease is treated like no lease
	f.LoseMessages = func() {
		now, _ := inner.InvalidateTags(ctx, "of which nobody knows", nil)
		shared.tellAll(cacheguard.Message{Kind: cacheguard.MessageRestored, Generation: now})
	}
	if m.harm != nil {
		m.harm(&f, bs)
	}
	return f, func() { inner.Close() }
}

// Caught returns the mutant's name and the cases that must notice it.
func (m mutant) Caught() (name string, cases []string) { return m.name, m.caught }

func suite() suitetest.Suite[storetest.Fleet, mutant] {
	s := suitetest.Suite[storetest.Fleet, mutant]{
		Mutants: mutants(),
		Open:    fleet,
		Tries: func(name string) int {
			if strings.HasPrefix(name, "together") {
				return 30
			}
			return 1
		},
		MaySkip: func(string) bool { return false },
	}
	for _, c := range storetest.Cases() {
		s.Cases = append(s.Cases, suitetest.Case[storetest.Fleet]{
			Name: c.Name, Protects: c.Promise,
			Run: func(r *suitetest.Recorder, f storetest.Fleet) { c.Run(r, f) },
		})
	}
	return s
}

func TestSuitePassesAGoodStore(t *testing.T) { suite().Passes(t, mutant{}) }

// A store may keep generations separately from values, and return them only if a process reads
// them.
func TestSuitePassesAStoreThatMustBeAskedForGenerations(t *testing.T) {
	suite().Passes(t, mutant{mutate: func(b *broken) {
		onValue(func(
			*broken, cacheguard.Key, []string, cacheguard.Generations,
		) cacheguard.Generations {
			return nil
		})(b)
		onGetManyTags(func(
			*broken, string, []string, cacheguard.Generations,
		) cacheguard.Generations {
			return nil
		})(b)
	}})
}

func TestSuiteFailsBrokenStores(t *testing.T) { suite().FailsMutants(t) }

// Each case fails for at least one broken store.
func TestEachCaseCatchesAMutant(t *testing.T) { suite().EachCaseCatches(t) }

func TestCasesAreNamed(t *testing.T) { suite().CasesAreNamed(t) }

func TestFleetOfOneIsRefused(t *testing.T) {
	s := memstore.New(memstore.Options{})
	r := suitetest.Record(func(r *suitetest.Recorder) {
		storetest.Cases()[0].Run(r, storetest.Fleet{Stores: []cacheguard.Store{s}})
	})
	if len(r.Failures) == 0 {
		t.Error("a case passes with one process")
	}
}
