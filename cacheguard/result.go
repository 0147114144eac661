package cacheguard

import (
	"fmt"
	"time"
)

// Result says what was found and how.
type Result[V any] struct {
	Value     V
	Status    Status
	NotFound  bool          // the null sentinel: the origin says it does not exist
	Local     bool          // answered by the process-local tier
	Degraded  bool          // the store was not usable; of a load's previous value: what it returns will not be stored
	began     uint32        // here there is room: its load began after that on the clock of this process' flights; 0: it was another process'
	Age       time.Duration // since the value was stored, on the store's clock
	FreshFor  time.Duration // negative when stale; 0 for a result that was not stored
	UsableFor time.Duration // a load's previous value: how much longer it may be served if that load fails; else 0
	Err       error         // why a stale value was served, if a load failed or could not be begun

	stamp int64 // when its load got its lease, on the store's clock; 0: nobody knows
}

// later is the result when it is so much older.
func (r Result[V]) later(d time.Duration) Result[V] {
	r.Age += d
	r.FreshFor -= d
	return r
}

// Status says where a Result came from.
type Status uint8

const (
	StatusMiss      Status = iota // nothing there
	StatusHit                     // a fresh value from the store
	StatusStale                   // a value past its TTL, within a stale window unless Peek returned it
	StatusLoaded                  // this caller's load
	StatusCoalesced               // somebody else's load, in this process or another one
)

var statusNames = [...]string{"miss", "hit", "stale", "loaded", "coalesced"}

// String is the status in words.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// outcome is what a flight lands with. Members read it and change copies only. Thousands of them
// have one on their stacks, so what most have none of stands aside.
type outcome[V any] struct {
	res  Result[V]
	err  error
	also *aside[V]
}

// aside is the rest of an outcome.
type aside[V any] struct {
	unshared bool      // the result, if there is one, is for the caller whose load it was; the others load for themselves
	marker   *found[V] // that said so, if it stood in the store
	several  *found[V] // what is stale, and for some callers only
	note     []byte    // of the load, from its tracer
	at       time.Time // of what is offered: when res was as old as it says
}

// unshared reports whether those who wait load for themselves.
func (out *outcome[V]) unshared() bool { return out.also != nil && out.also.unshared }

// noted is an outcome with what a load's tracer noted.
func noted[V any](res Result[V], err error, note []byte) outcome[V] {
	out := outcome[V]{res: res, err: err}
	if len(note) > 0 {
		out.also = &aside[V]{note: note}
	}
	return out
}
