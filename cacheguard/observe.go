package cacheguard

import (
	"context"
	"fmt"
	"time"
)

// Observer is told what a cache does. Observe is called synchronously, also on the way of a hit, by many goroutines
// at once: it must be safe for concurrent use and return at once. A panic in it is dropped; runtime.Goexit must not be
// called in it, for that would end the work it is told of.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one thing that happened. Cache and Kind are always set, the others where the kind says so.
type Event struct {
	Cache string
	Kind  EventKind
	Key   string
	Took  time.Duration
	Err   error
}

// EventKind says what happened. New kinds may be added; an Observer ignores those it doesn't know.
type EventKind uint8

const (
	EventHit          EventKind = iota + 1 // a fresh value, or a fresh null sentinel, was found
	EventMiss                              // nothing was found, or nothing that can be served
	EventCoalesced                         // a caller was served by somebody else's load; Err
	EventLeaseAsked                        // the store was asked for the lease
	EventLeaseGranted                      // and granted it
	EventWaited                            // this process has waited for another one's load; Took
	EventLoad                              // a load ended; Took, Err
	EventLoadLate                          // a load returned after its flight was over; Took
	EventFilled                            // a result was stored
	EventFillRefused                       // a result was not stored, because its lease was lost
	EventFillUnknown                       // whether a result was stored is not known; Err
	EventNotStored                         // a result was not stored, by the load's wish or because it can't be; Err
	EventRenewed                           // a lease was renewed
	EventLeaseLost                         // a lease was lost under a running load
	EventCorrupt                           // what the store had under a key is not a value; Err
	EventStoreError                        // the store could not be used; Err
	EventOverloaded                        // a caller or a load was turned away
	EventStale                             // a stale value was served; Err if a load failed
)

var eventNames = [...]string{
	EventHit: "hit", EventMiss: "miss", EventCoalesced: "coalesced", EventLeaseAsked: "lease asked",
	EventLeaseGranted: "lease granted", EventWaited: "waited", EventLoad: "load", EventLoadLate: "load late",
	EventFilled: "filled", EventFillRefused: "fill refused", EventFillUnknown: "fill unknown",
	EventNotStored: "not stored", EventRenewed: "renewed", EventLeaseLost: "lease lost", EventCorrupt: "corrupt",
	EventStoreError: "store error", EventOverloaded: "overloaded",
	EventStale: "stale",
}

// String is the kind in words.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

func (c *Cache[V]) observe(ctx context.Context, e Event) {
	if c.opts.Observer == nil {
		return
	}
	e.Cache = c.opts.Name
	defer func() { _ = recover() }() // an observer must not be able to kill a load
	c.opts.Observer.Observe(ctx, e)
}
