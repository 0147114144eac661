package guardtest

import (
	"log/slog"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Fleet is the replicas of a program, in one process: caches of the same name that share nothing
// but their store. Each hears of the others' loads and changes by the store's messages, as in
// production.
type Fleet[V any] struct {
	tb       testing.TB
	replicas []*cacheguard.Cache[V]
}

// NewFleet makes n replicas. Without stores they are on one memstore of their own; with one store
// all are on that one; with n stores each is on its own, and it is for the stores to be of one
// fleet, such as redisstores with one Redis and one prefix. Stores that are handed in stay open.
//
// Options are those of each replica. Name is "guardtest" if there is none, Logger the test's log if
// there is none. All replicas have the same Observer and the same Limiter, if there is one;
// MaxLoads is for each of them, as usual.
//
// When the test ends the caches are closed. One in which a load that ignores its context still runs
// then fails the test: in production it would hold its slot of MaxLoads, and whatever it has
// captured, for as long.
//
// NewFleet fails the test with tb.Fatalf if the options are wrong, n is less than 1, or there are
// neither 0 nor 1 nor n stores.
func NewFleet[V any](tb testing.TB, n int, opts cacheguard.Options[V], stores ...cacheguard.Store) *Fleet[V] {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("guardtest: NewFleet: %d replicas; at least 1 is needed", n)
	}
	if len(stores) > 1 && len(stores) != n {
		tb.Fatalf("guardtest: NewFleet: %d stores for %d replicas; none, 1 or one for each is needed", len(stores), n)
	}
	if len(stores) == 0 {
		store := memstore.New(memstore.Options{})
		tb.Cleanup(func() { _ = store.Close() }) // it never fails
		stores = []cacheguard.Store{store}
	}
	if opts.Name == "" {
		opts.Name = "guardtest"
	}
	log := &testLog{tb: tb}
	tb.Cleanup(log.end) // after the caches
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	f := &Fleet[V]{tb: tb}
	for i := range n {
		f.replicas = append(f.replicas, newReplica(tb, i, stores[i%len(stores)], opts))
	}
	return f
}

func newReplica[V any](tb testing.TB, i int, store cacheguard.Store, opts cacheguard.Options[V]) *cacheguard.Cache[V] {
	tb.Helper()
	ear := &ear{}
	opts.Logger = slog.New(listening{opts.Logger.Handler(), ear}).With("replica", i)
	cache, err := cacheguard.New(store, opts)
	if err != nil {
		tb.Fatalf("guardtest: NewFleet: %v", err)
	}
	tb.Cleanup(func() {
		_ = cache.Close() // it never fails
		if ear.stubborn.Load() {
			tb.Errorf("guardtest: replica %d was closed while a load that ignores its context still ran", i)
		}
	})
	return cache
}

// Replica is the cache of replica i, counted from 0: hand it to the code under test. A test may
// close it, as a replica that is stopped does.
func (f *Fleet[V]) Replica(i int) *cacheguard.Cache[V] {
	f.tb.Helper()
	if i < 0 || i >= len(f.replicas) {
		f.tb.Fatalf("guardtest: Replica(%d) of a fleet of %d", i, len(f.replicas))
	}
	return f.replicas[i]
}
