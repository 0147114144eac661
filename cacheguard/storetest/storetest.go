package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Fleet is a store as the processes of a fleet see it. Only Stores is required.
type Fleet struct {
	// Stores are at least two stores that share their state like two processes. Each has its own
	// connections.
	Stores []cacheguard.Store

	// Advance moves the store's clock forward by d. Default: the store's clock runs by itself, and
	// the suite waits.
	Advance func(d time.Duration)

	// WrongType replaces a key's value by an entry that is not a string of bytes.
	WrongType func(k cacheguard.Key)

	// LoseLease removes the entry under the name of a key's lease, as an eviction or a failover
	// would.
	LoseLease func(k cacheguard.Key)

	// SpoilLease stores an entry under the name of a key's lease that is not a lease and never
	// expires.
	SpoilLease func(k cacheguard.Key)

	// LoseMessages interrupts the connection on which Stores[1] receives messages, so that some may
	// be lost, and then lets it recover.
	LoseMessages func()
}

// TB is the part of [testing.TB] that cases use. Fatalf and Skipf end the calling goroutine.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one test of a store. Run may be called many times.
type Case struct {
	Name    string
	Promise string // the promise that a store breaks if it fails the case
	Run     func(t TB, f Fleet)
}

// Run runs all cases as subtests, each with a fleet of its own.
func Run(t *testing.T, open func(t *testing.T) Fleet) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// Cases returns all cases.
func Cases() []Case {
	var all []Case
	for _, s := range slices.Concat(
		valueCases, keyCases, leaseCases, fillCases, outcomeCases, holdCases, writeCases,
		messageCases, listenCases, togetherCases, clockCases, generationCases, markCases, manyCases,
		versionCases,
	) {
		all = append(all, Case{Name: s.name, Promise: s.promise, Run: s.run})
	}
	return all
}

// spec is a case in the form in which the files of this package define it.
type spec struct {
	name    string
	promise string
	test    func(e *env)
}

func (s spec) run(t TB, f Fleet) {
	t.Helper()
	if len(f.Stores) < 2 {
		t.Fatalf("a fleet has at least two stores, not %d", len(f.Stores))
	}
	e := newEnv(t, f, s.promise)
	defer e.close()
	s.test(e)
}

// The promises that the cases test, and the rules behind them.
const (
	oneLoad    = "P1, one load: while a lease is alive there is one load of its key in the fleet"
	oneResult  = "P2, one result for all: those who wait get the result of the load they wait for, and get it pushed"
	noLateFill = "P3, a late load cannot overwrite: a fill counts only while the lease carries its own grant"
	anyValue   = "P4, any bytes are a value"
	releases   = "P6, every exit releases: the next one gets the lease and those who wait are told"
	survives   = "P7, trouble with the store ends by itself"
	backsOff   = "P8, a failed load holds off the whole fleet, and nobody longer than it says"
	bounded    = "P9, bounds everywhere: nothing is kept for longer than it was given for"
	survivable = "P10, any bytes in the store are survivable: they are a miss that the next fill overwrites"
	localTruth = "P11, a local tier that tells the truth: each process hears of each change"
	apart      = "P12, no one sees another's: two keys are never one"

	tagged       = "tags: a value counts if its load began after the last invalidation of its cache and of each of its tags, and only then"
	marksStale   = "hard and soft: what is marked stale stays, is stale from the first mark on, and no load from before it ends after it"
	manyTogether = "many at once: each key has an answer of its own, the one it would have alone"

	repeatable = "late commands: each step is harmless when it is repeated by its own token, for a reply can be lost"
	numbered   = "late commands: each grant has a number, so that a copy that arrives late can't act for another grant"
	named      = "outcomes have names: a waiter takes an outcome only from the load it was told to wait for"
	tokened    = "tokens: a value whose load began before a moment on the store's clock is told from one whose load began after it"
	versioned  = "versions: values of two versions of a type stand side by side, and what changes a key changes both"
	oneClock   = "clocks: all processes measure ages with the store's clock"
)
