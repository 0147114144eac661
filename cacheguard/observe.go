package cacheguard

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Observer is told what a cache does. Many goroutines call Observe, synchronously, also during a hit:
// it must be safe for concurrent use and return at once. A panic in Observe is dropped. Observe must
// not call runtime.Goexit, which would end the work that it is told of. An Observer may also
// implement LoadTracer, Attacher, HitsUntold and Watcher.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one thing that happened. Cache and Kind are always set, the others where the kind says
// so.
type Event struct {
	Cache    string
	Key      string
	Kind     EventKind
	NotFound bool // what was found is "does not exist"
	Local    bool // it was found in the process-local tier
	Took     time.Duration
	Err      error
	Reason   Reason
	Differs  Difference
	Story    *Story // of a difference
	Audit    bool   // it is of a load that an Audit has begun, and nobody waits for that
	Note     []byte // what the LoadTracer noted at the load that made the result, in whatever process; not to be changed
}

// EventKind says what happened. New kinds may be added; an Observer ignores those it doesn't know.
type EventKind uint8

const (
	EventHit          EventKind = iota + 1 // a fresh value, or a fresh null sentinel, was found; NotFound, Local
	EventMiss                              // nothing was found, or nothing that can be served
	EventCoalesced                         // a caller was served by somebody else's load; Took (its wait), NotFound, Err, Note
	EventLeaseAsked                        // the store was asked for the lease
	EventLeaseGranted                      // and granted it
	EventWaited                            // this process has waited for another one's load; Took, Note if that brought its outcome
	EventLoad                              // a load ended; Took, NotFound, Err, Note, Audit; its context is the load's
	EventLoadLate                          // a load returned after its flight was over; Took, Err, Note
	EventFilled                            // a result was stored
	EventFillRefused                       // a result was not stored, because its lease was lost
	EventFillUnknown                       // whether a result was stored is not known; Err
	EventNotStored                         // a result was not stored, by the load's wish or because it can't be; Err
	EventRenewed                           // a lease was renewed
	EventLeaseLost                         // a lease was lost under a running load
	EventCorrupt                           // what the store had under a key is not a value; Err
	EventStoreError                        // the store could not be used; Err
	EventOverloaded                        // a caller or a load was turned away
	EventStale                             // a stale value was served; NotFound, Err if a load failed; Took, Note if it was waited for
	EventLoaded                            // a caller got what became of the load that it began, or why that could not begin; as EventCoalesced
	EventUnstored                          // package middleware: a response is not stored; Reason
	EventCompared                          // a hit, or what would have been one, was compared with the origin; Local, NotFound, Took (its age), Note, Differs, Story
	EventSampled                           // one of the hits, for a Watcher, picked at random; NotFound, Local
)

var eventNames = [...]string{
	EventHit: "hit", EventMiss: "miss", EventCoalesced: "coalesced", EventLeaseAsked: "lease asked",
	EventLeaseGranted: "lease granted", EventWaited: "waited", EventLoad: "load", EventLoadLate: "load late",
	EventFilled: "filled", EventFillRefused: "fill refused", EventFillUnknown: "fill unknown",
	EventNotStored: "not stored", EventRenewed: "renewed", EventLeaseLost: "lease lost", EventCorrupt: "corrupt",
	EventStoreError: "store error", EventOverloaded: "overloaded",
	EventStale: "stale", EventLoaded: "loaded", EventUnstored: "unstored", EventCompared: "compared", EventSampled: "sampled",
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

// beganToWait is when a caller began to wait for a flight, if somebody is to be told for how long
// it did. While the flight only looks into the store it doesn't read the clock, which costs as much
// as all the rest that an observer costs a hit.
func (c *Cache[V]) beganToWait(f *flight.Flight[outcome[V]]) (began time.Time) {
	if c.opts.Observer != nil && !f.Detached().IsZero() {
		began = time.Now()
	}
	return began
}

// served tells of a caller that got a flight's outcome, for which it has waited since began or else
// since there was something to wait for. kind is what that is unless the outcome says something
// else.
func (c *Cache[V]) served(ctx context.Context, kind EventKind, key string, f *flight.Flight[outcome[V]], out *outcome[V], began time.Time) {
	if c.opts.Observer == nil {
		return
	}
	e := Event{Kind: kind, Key: key, NotFound: out.res.NotFound, Err: out.err}
	if out.also != nil {
		e.Note = out.also.note
	}
	if began.IsZero() {
		began = f.Detached()
	}
	if !began.IsZero() {
		e.Took = time.Since(began)
	}
	switch out.res.Status {
	case StatusStale:
		e.Kind, e.Err = EventStale, out.res.Err
	case StatusCoalesced:
		e.Kind = EventCoalesced
	}
	c.observe(ctx, e)
}
