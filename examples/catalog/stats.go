package main

import (
	"context"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// stats is the body of /stats.json.
type stats struct {
	Loads    int64          `json:"loads"` // from the database, over all replicas
	Replicas []replicaStats `json:"replicas"`
}

type replicaStats struct {
	Address       string  `json:"address"`
	Requests      int64   `json:"requests"` // for the category map
	Results       results `json:"results"`
	LeaseRequests int64   `json:"leaseRequests"` // how often this replica asked for the lease
	LeasesGranted int64   `json:"leasesGranted"` // and got it
}

// results says how requests got their answer.
type results struct {
	Hit       int64 `json:"hit"`       // from the cache
	Coalesced int64 `json:"coalesced"` // from a load that another request began, here or in another replica
	Loaded    int64 `json:"loaded"`    // from the load they began
}

// tally counts what one replica does. It is the observer of the replica's cache. The zero tally is ready to use and
// safe for concurrent use.
type tally struct {
	requests atomic.Int64
	events   [256]atomic.Int64 // by kind
}

// Observe counts an event.
func (t *tally) Observe(_ context.Context, e cacheguard.Event) {
	t.events[e.Kind].Add(1)
}

func (t *tally) stats(address string) replicaStats {
	return replicaStats{
		Address:  address,
		Requests: t.requests.Load(),
		Results: results{
			Hit:       t.events[cacheguard.EventHit].Load(),
			Coalesced: t.events[cacheguard.EventCoalesced].Load(),
			Loaded:    t.events[cacheguard.EventLoad].Load(),
		},
		LeaseRequests: t.events[cacheguard.EventLeaseAsked].Load(),
		LeasesGranted: t.events[cacheguard.EventLeaseGranted].Load(),
	}
}
