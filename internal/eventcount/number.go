package eventcount

import (
	"sync/atomic"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/report"
	"github.com/cacheguard/cacheguard/internal/striped"
)

// Number identifies one counter of a cache: a metric, or one number of a metric that has several
// numbers.
type Number uint8

const (
	Hit Number = iota
	NegativeHit
	LocalHit
	LocalNegativeHit
	hits // the number of numbers that count hits
)

const (
	Stale Number = hits + iota
	Coalesced
	Loaded
	Failed
	miss
	leaseAsked
	leaseGranted
	leaseRenewed
	leaseLost
	loadValue
	loadNotFound
	loadError
	loadCancelled
	loadAudit
	loadLate
	fillStored
	fillRefused
	fillUnknown
	notStored
	corrupt
	Overloaded
	changed
	sentLate
	compared                                             // the first of several, by difference
	unstored = compared + Number(cacheguard.Differences) // the first of several, by reason
	// The first of several, by class of the cause.
	storeError = unstored + Number(cacheguard.Reasons)
	// How many there are; also stands for events that aren't counted.
	Numbers = storeError + Number(len(report.Classes))
)

// Counters are the counters of one cache. The zero Counters is ready to use and safe for concurrent
// use.
type Counters struct {
	hits  striped.Counters // the numbers below hits
	count [Numbers]atomic.Uint64
}

// Count counts an event and returns the number to which it added the event. If events of its kind
// aren't counted, Count returns Numbers.
func (c *Counters) Count(e *cacheguard.Event) Number {
	n := numberOf(e)
	switch {
	case n < hits:
		c.hits.Add(uint8(n))
	case n < Numbers:
		c.count[n].Add(1)
	}
	return n
}

// Read returns the value of a number. Changes come from the cache's stats, not from events. Local
// hits come from the stats, and also from events, because another observer of the cache may need
// events of local hits.
func (c *Counters) Read(n Number, stats cacheguard.Stats) uint64 {
	switch n {
	case LocalHit:
		return c.hits.Sum(uint8(n)) + stats.LocalHits
	case LocalNegativeHit:
		return c.hits.Sum(uint8(n)) + stats.LocalNegativeHits
	case Hit, NegativeHit:
		return c.hits.Sum(uint8(n))
	case changed:
		return stats.Changes
	case sentLate:
		return stats.SentLate
	}
	return c.count[n].Load()
}

// numberOf returns the number that an event adds to, or Numbers.
func numberOf(e *cacheguard.Event) Number {
	switch {
	case e.Kind == cacheguard.EventHit:
		return hitNumber(e)
	case e.Kind == cacheguard.EventCoalesced:
		return unlessFailed(Coalesced, e)
	case e.Kind == cacheguard.EventLoaded:
		return unlessFailed(Loaded, e)
	case e.Kind == cacheguard.EventLoad:
		return loadNumber(e)
	case e.Kind == cacheguard.EventCompared && e.Differs < cacheguard.Differences:
		return compared + Number(e.Differs)
	case e.Kind == cacheguard.EventUnstored && e.Reason > 0 && e.Reason < cacheguard.Reasons:
		return unstored + Number(e.Reason)
	case e.Kind == cacheguard.EventStoreError:
		return storeError + Number(report.Class(e.Err))
	case int(e.Kind) < len(plain) && plain[e.Kind] != 0:
		return plain[e.Kind]
	}
	return Numbers
}

// plain has the kinds whose events always add to the same number.
var plain = [...]Number{
	cacheguard.EventMiss: miss, cacheguard.EventStale: Stale,
	cacheguard.EventLeaseAsked: leaseAsked, cacheguard.EventLeaseGranted: leaseGranted,
	cacheguard.EventRenewed: leaseRenewed, cacheguard.EventLeaseLost: leaseLost,
	cacheguard.EventLoadLate: loadLate,
	cacheguard.EventFilled:   fillStored, cacheguard.EventFillRefused: fillRefused,
	cacheguard.EventFillUnknown: fillUnknown, cacheguard.EventNotStored: notStored,
	cacheguard.EventCorrupt: corrupt, cacheguard.EventOverloaded: Overloaded,
}

func hitNumber(e *cacheguard.Event) Number {
	switch {
	case e.Local && e.NotFound:
		return LocalNegativeHit
	case e.Local:
		return LocalHit
	case e.NotFound:
		return NegativeHit
	}
	return Hit
}

func unlessFailed(n Number, e *cacheguard.Event) Number {
	if e.Err != nil {
		return Failed
	}
	return n
}

// GivenUp reports whether err is the cause that cancelled a load: its callers had left, a cache was
// closed, or another load had the lease. Such an error says nothing about the origin. An error that
// wraps one of these is the load's own.
func GivenUp(err error) bool {
	switch err {
	case flight.ErrAbandoned, cacheguard.ErrClosed, cacheguard.ErrLeaseLost:
		return true
	}
	return false
}

// Problem reports whether an event is a problem of the cache, the store or the origin. A load that
// failed because the cache had cancelled it is no problem. A refused fill is no problem, because
// usually the key was changed during the load, and the refusal is right.
func Problem(e *cacheguard.Event) bool {
	switch e.Kind {
	case cacheguard.EventStoreError, cacheguard.EventFillUnknown, cacheguard.EventCorrupt,
		cacheguard.EventLeaseLost, cacheguard.EventOverloaded:
		return true
	case cacheguard.EventLoadLate:
		return !GivenUp(e.Err)
	case cacheguard.EventLoad, cacheguard.EventNotStored:
		return e.Err != nil && !GivenUp(e.Err)
	case cacheguard.EventCompared:
		return e.Differs.Wrong()
	}
	return false
}

// loadNumber returns the number that counts loads with the end of this load.
func loadNumber(e *cacheguard.Event) Number {
	switch {
	case e.Audit:
		return loadAudit
	case GivenUp(e.Err):
		return loadCancelled
	case e.Err != nil:
		return loadError
	case e.NotFound:
		return loadNotFound
	}
	return loadValue
}
