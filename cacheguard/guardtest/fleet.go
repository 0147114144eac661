package guardtest

import (
	"log/slog"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Fleet plays several replicas of a program inside one process. Each replica is a cache. All caches
// have the same name, and the same store, or stores with the same data. The store's messages tell
// each cache of the loads and changes of the other caches, as in production.
type Fleet[V any] struct {
	tb       testing.TB
	replicas []*cacheguard.Cache[V]
}

// NewFleet makes n replicas. Without stores, all replicas use a memstore that NewFleet makes. With
// one store, all replicas use that store. With n stores, each replica uses one of them. These
// stores must use the same data, for example redisstores with the same Redis and prefix. NewFleet
// doesn't close the stores that you pass.
//
// The options apply to each replica. The default of Name is "guardtest", and the default of Logger
// writes to the test's log. All replicas use the same Observer and the same Limiter, if these are
// set. MaxLoads applies to each replica separately, as usual.
//
// When the test ends, the caches are closed. If a load that ignores its context still runs in one
// of them at that time, the test fails, because in production this load would keep its slot of
// MaxLoads, and the memory that it refers to, until it returns.
//
// NewFleet fails the test with tb.Fatalf if the options are wrong, if n is less than 1, or if the
// number of stores is not 0, 1 or n.
func NewFleet[V any](
	tb testing.TB, n int, opts cacheguard.Options[V], stores ...cacheguard.Store,
) *Fleet[V] {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("guardtest: NewFleet: %d replicas; at least 1 is needed", n)
	}
	if len(stores) > 1 && len(stores) != n {
		tb.Fatalf("guardtest: NewFleet: %d stores for %d replicas; none, 1 or one for each is needed",
			len(stores), n)
	}
	if len(stores) == 0 {
		store := memstore.New(memstore.Options{})
		tb.Cleanup(func() { _ = store.Close() }) // Close never fails
		stores = []cacheguard.Store{store}
	}
	if opts.Name == "" {
		opts.Name = "guardtest"
	}
	log := &testLog{tb: tb}
	tb.Cleanup(log.end) // runs after the caches are closed
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	f := &Fleet[V]{tb: tb}
	for i := range n {
		f.replicas = append(f.replicas, newReplica(tb, i, stores[i%len(stores)], opts))
	}
	return f
}

func newReplica[V any](
	tb testing.TB, i int, store cacheguard.Store, opts cacheguard.Options[V],
) *cacheguard.Cache[V] {
	tb.Helper()
	ear := &ear{}
	opts.Logger = slog.New(listening{opts.Logger.Handler(), ear}).With("replica", i)
	cache, err := cacheguard.New(store, opts)
	if err != nil {
		tb.Fatalf("guardtest: NewFleet: %v", err)
	}
	tb.Cleanup(func() {
		_ = cache.Close() // Close never fails
		if ear.stubborn.Load() {
			tb.Errorf("guardtest: replica %d was closed while a load that ignores its context still ran",
				i)
		}
	})
	return cache
}

// Replica returns the cache of replica i, counted from 0. Pass it to the code under test. A test
// may close the cache, as a replica does when it is stopped.
func (f *Fleet[V]) Replica(i int) *cacheguard.Cache[V] {
	f.tb.Helper()
	if i < 0 || i >= len(f.replicas) {
		f.tb.Fatalf("guardtest: Replica(%d) of a fleet of %d", i, len(f.replicas))
	}
	return f.replicas[i]
}
