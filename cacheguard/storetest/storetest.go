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
	oneLoad    = "P1, one load: while a process holds the lease of a key, no other process loads the key"
	oneResult  = "P2, one result for all: a process that waits for a load gets its result, and a message wakes the process"
	noLateFill = "P3, a late load overwrites nothing: a fill is stored only while the lease carries the grant of its load"
	anyValue   = "P4, any bytes are a value: a reader gets exactly the bytes that were stored"
	releases   = "P6, every exit releases the lease: the next process gets the lease, and waiting processes are told"
	survives   = "P7, trouble with the store ends by itself: a lost or damaged lease keeps no process from loading"
	backsOff   = "P8, after a failed load all processes pause until its back-off ends, and no longer"
	bounded    = "P9, bounds everywhere: the store keeps nothing for longer than it was told to"
	survivable = "P10, any bytes in the store are survivable: bytes that are no value are a miss, and the next fill overwrites them"
	localTruth = "P11, a local tier tells the truth: each process gets a message about each change"
	apart      = "P12, nobody sees the data of others: different keys, tags and caches never share an entry"

	tagged       = "tags: a value is valid if its load began after the last invalidation of its cache and of each of its tags, and only then"
	marksStale   = "marks: a marked value stays in the store, is stale from the first mark on, and no load that began before the mark stores anything"
	manyTogether = "many at once: each key of a batch gets the answer that it would get alone"

	repeatable = "repeated commands: a process may repeat a step with its own token, because a reply can be lost, and the repetition does no harm"
	numbered   = "late commands: each grant has a number of its own, so a copy of a command that arrives late can't act for another grant"
	named      = "outcomes have names: a waiting process takes an outcome only from the load that it waits for"
	tokened    = "tokens: the store's clock tells whether a load began before or after a given moment"
	versioned  = "versions: values of two versions of a type are stored side by side, and a change of a key changes both"
	oneClock   = "clocks: all processes measure ages with the store's clock"
)
