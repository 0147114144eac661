package cacheguard

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Observer gets an [Event] for each action of a cache. Many goroutines call Observe, and each call
// of the cache waits for it, even a hit. So Observe must be safe for concurrent use and return at
// once. A panic in Observe is dropped. Observe must not call runtime.Goexit, because Goexit would
// end the work that the event is about. An Observer may also implement [LoadTracer], [Attacher],
// [HitsUntold] and [Watcher].
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one event in a cache. Cache and Kind are always set. Key is set, too, except in some
// events of the kinds EventStoreError and EventUnstored. The comment of each [EventKind] names the
// other fields that an event of the kind may set.
type Event struct {
	Cache    string
	Key      string // of a load for several keys: the first one
	More     int    // of EventLoad and EventLoadLate: the number of further keys of the load
	Kind     EventKind
	NotFound bool // the result is "does not exist"
	Local    bool // the value was found in the process-local tier
	Took     time.Duration
	Err      error // names no key, unless it is a load's own error; a LoadError has no Key
	Reason   Reason
	Differs  Difference
	Story    *Story // of EventCompared, if there is a difference
	Audit    bool   // an Audit began the load, and no caller waits for it
	// The LoadTracer's note of the load that made the result, in any process; must not be changed.
	Note []byte
}

// EventKind is the kind of an event. Later releases may add kinds, so an Observer must ignore kinds
// that it doesn't know.
type EventKind uint8

const (
	// A fresh value, or a fresh null sentinel, was found. Sets NotFound, Local.
	EventHit  EventKind = iota + 1
	EventMiss           // no value was found, or none that can be served
	// A caller was served by the load of another call. Sets Took (how long the caller waited),
	// NotFound, Err, Note.
	EventCoalesced
	EventLeaseAsked   // the store was asked for the lease
	EventLeaseGranted // the store granted the lease
	// This process has waited for a load that had the lease, usually a load of another process.
	// Sets Took, and Note if the result of that load came.
	EventWaited
	// A load, or the write of an Update, ended. Sets Took, NotFound, Err, Note, Audit. The event's
	// context is the load's context. If a load failed after the cache had cancelled it, because its
	// callers had left, the cache was closed or another load had the lease, Err is the cause of
	// that context. Such an error says nothing about the origin.
	EventLoad
	// A load returned after the cache had given it up, for instance after LoadTimeout. Sets Took,
	// Err (as for EventLoad), Note.
	EventLoadLate
	EventFilled      // a result was stored
	EventFillRefused // a result was not stored, because its lease was lost
	EventFillUnknown // it is not known whether the result was stored; sets Err
	// A result was not stored, because the load set NoStore, NegativeTTL is negative, or the result
	// can't be stored. Sets Err if it can't be stored.
	EventNotStored
	EventRenewed   // a lease was renewed
	EventLeaseLost // a lease was lost while its load was running
	// The store had bytes under a key that are not a value, or are a value of another codec or
	// Options.Version. Sets Err.
	EventCorrupt
	EventStoreError // the store could not be used; sets Err
	// A caller or a load was turned away with ErrOverloaded. Sets Err.
	EventOverloaded
	// A stale value was served. Sets NotFound, Err (as in Result.Err), and Took and Note if the
	// caller waited for a load.
	EventStale
	// A caller got the result of the load that it began, or an error because the load could not
	// begin. Sets the fields of EventCoalesced.
	EventLoaded
	EventUnstored // package middleware did not store a response; sets Reason
	// A hit, or in shadow mode a value that would have been a hit, was compared with the origin.
	// Sets Local, NotFound, Took (the value's age), Note, Differs, Story.
	EventCompared
	// A hit was picked at random, for a Watcher. Sets NotFound, Local.
	EventSampled
)

var eventNames = [...]string{
	EventHit: "hit", EventMiss: "miss", EventCoalesced: "coalesced", EventLeaseAsked: "lease asked",
	EventLeaseGranted: "lease granted", EventWaited: "waited", EventLoad: "load",
	EventLoadLate: "load late",
	EventFilled:   "filled", EventFillRefused: "fill refused", EventFillUnknown: "fill unknown",
	EventNotStored: "not stored", EventRenewed: "renewed", EventLeaseLost: "lease lost",
	EventCorrupt:    "corrupt",
	EventStoreError: "store error", EventOverloaded: "overloaded",
	EventStale: "stale", EventLoaded: "loaded", EventUnstored: "unstored",
	EventCompared: "compared", EventSampled: "sampled",
}

// String returns the name of the kind.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// observe passes an event to the Observer, if there is one.
func (c *Cache[V]) observe(ctx context.Context, e Event) {
	if c.opts.Observer != nil {
		c.tell(ctx, e)
	}
}

// tell is observe if there is an Observer.
func (c *Cache[V]) tell(ctx context.Context, e Event) {
	e.Cache, e.Err = c.opts.Name, keyless(e.Err)
	// A panic in an observer must not end the load that it observes.
	defer func() { _ = recover() }()
	c.opts.Observer.Observe(ctx, e)
}

// beganToWait returns when a caller began to wait for a flight, if there is an Observer. While the
// flight only looks into the store, it returns zero: reading the clock would double the cost of an
// observer for a hit.
func (c *Cache[V]) beganToWait(f *flight.Flight[outcome[V]]) (began time.Time) {
	if c.opts.Observer != nil && !f.Detached().IsZero() {
		began = time.Now()
	}
	return began
}

// served reports that a caller got a flight's outcome. The caller has waited since began. If began
// is zero, the caller has waited since the flight was detached from its look-up. kind is the
// event's kind, unless the outcome's Status requires another kind.
func (c *Cache[V]) served(
	ctx context.Context, kind EventKind, key string, f *flight.Flight[outcome[V]], out *outcome[V],
	began time.Time,
) {
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
