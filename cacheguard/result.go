package cacheguard

import (
	"fmt"
	"time"
)

// Result is a value together with where it came from and how fresh it is.
type Result[V any] struct {
	Value     V
	Status    Status
	NotFound  bool          // the value does not exist at the origin (the null sentinel)
	Local     bool          // answered by the process-local tier
	Degraded  bool          // the store could not be used; in a load's previous value: the load's result will not be stored
	began     uint32        // placed where it takes no extra space: its load began after this on the clock of this process' flights; 0: another process loaded
	Age       time.Duration // since the value was stored, on the store's clock
	FreshFor  time.Duration // negative when stale; 0 for a result that was not stored
	UsableFor time.Duration // in a load's previous value: how much longer the value may be served if the load fails; else 0
	Err       error         // why a stale value was served, if a load failed or could not be begun

	stamp int64 // when its load got its lease, on the store's clock; 0: not known
}

// later returns the result as it is after a time d: older by d, and fresh for less.
func (r Result[V]) later(d time.Duration) Result[V] {
	r.Age += d
	r.FreshFor -= d
	return r
}

// Status says where a [Result] came from.
type Status uint8

const (
	StatusMiss      Status = iota // no value was found
	StatusHit                     // a fresh value from the store
	StatusStale                   // a value past its TTL, within a stale window unless Peek returned it
	StatusLoaded                  // the load that this call began
	StatusCoalesced               // the load of another call, in this process or another one
)

var statusNames = [...]string{"miss", "hit", "stale", "loaded", "coalesced"}

// String is the status in words.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// outcome is what a flight lands with. All callers of the flight read the same outcome, so they
// change copies only. Thousands of waiting callers have a copy on their stacks, so fields that are
// rarely set are kept apart, in aside.
type outcome[V any] struct {
	res  Result[V]
	err  error
	also *aside[V]
}

// aside has the fields of an outcome that are rarely set.
type aside[V any] struct {
	unshared bool      // the result, if there is one, is only for the caller whose load made it; the others load for themselves
	marker   *found[V] // the hit-for-miss marker, if unshared was read from the store
	several  *found[V] // a stale value that is for some callers only; see several.go
	note     []byte    // of the load's LoadTracer
	at       time.Time // if res is offered as a stale value: the moment of which res.Age is
}

// unshared reports whether each waiting caller loads for itself.
func (out *outcome[V]) unshared() bool { return out.also != nil && out.also.unshared }

// noted makes an outcome with the note of the load's [LoadTracer].
func noted[V any](res Result[V], err error, note []byte) outcome[V] {
	out := outcome[V]{res: res, err: err}
	if len(note) > 0 {
		out.also = &aside[V]{note: note}
	}
	return out
}
