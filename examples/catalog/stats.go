package main

import (
	"context"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// stats is the body of /stats.json.
type stats struct {
	// Loads of the category map from the database, by all replicas.
	Loads         int64 `json:"loads"`
	CategoryLoads int64 `json:"categoryLoads"` // loads of single categories
	// The number of times that the page was made.
	PageRuns int64          `json:"pageRuns"`
	Renames  int64          `json:"renames"`
	Replicas []replicaStats `json:"replicas"`
}

type replicaStats struct {
	Address  string  `json:"address"`
	Requests int64   `json:"requests"` // for the category map
	Results  results `json:"results"`
	// The number of times that this replica asked for the lease.
	LeaseRequests int64 `json:"leaseRequests"`
	LeasesGranted int64 `json:"leasesGranted"` // how often this replica got the lease
}

// results counts requests by the origin of their answers.
type results struct {
	Hit int64 `json:"hit"` // from the cache
	// From a load that another request began, in this or another replica.
	Coalesced int64 `json:"coalesced"`
	Loaded    int64 `json:"loaded"` // from the load that the request itself began
}

// tally counts the events of one replica for the category map. It is an observer of that cache. The
// zero tally is ready to use and safe for concurrent use.
type tally struct {
	requests atomic.Int64
	events   [256]atomic.Int64 // by kind
}

// Observe counts an event.
func (t *tally) Observe(_ context.Context, e cacheguard.Event) {
	t.events[e.Kind].Add(1)
}

// passed counts a point that a request passes, if a stage of the lab protects the tree.
func (t *tally) passed(p stage.Point) {
	if kind, ok := kindOf[p]; ok {
		t.events[kind].Add(1)
	}
}

var kindOf = map[stage.Point]cacheguard.EventKind{
	stage.Hit: cacheguard.EventHit, stage.Load: cacheguard.EventLoad,
	stage.Try: cacheguard.EventLeaseAsked, stage.Acquired: cacheguard.EventLeaseGranted,
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
