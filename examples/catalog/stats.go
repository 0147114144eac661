package main

import (
	"context"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/examples/catalog/stage"
)

// stats is the body of /stats.json.
type stats struct {
	Loads         int64          `json:"loads"`         // of the category map from the database, over all replicas
	CategoryLoads int64          `json:"categoryLoads"` // of single categories
	PageRuns      int64          `json:"pageRuns"`      // how often the page was made
	Renames       int64          `json:"renames"`
	Replicas      []replicaStats `json:"replicas"`
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

// tally counts what one replica does for the category map. It is an observer of that cache. The
// zero tally is ready to use and safe for concurrent use.
type tally struct {
	requests atomic.Int64
	events   [256]atomic.Int64 // by kind
}

// Observe counts an event.
func (t *tally) Observe(_ context.Context, e cacheguard.Event) {
	t.events[e.Kind].Add(1)
}

// passed counts a point that a request comes by, if the tree is protected by a stage of the lab.
func (t *tally) passed(p stage.Point) {
	if kind, ok := kindOf[p]; ok {
		t.events[kind].Add(1)
	}
}

var kindOf = map[stage.Point]cacheguard.EventKind{
	stage.Hit: cacheguard.EventHit, stage.Load: cacheguard.EventLoad, stage.Try: cacheguard.EventLeaseAsked, stage.Acquired: cacheguard.EventLeaseGranted,
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
