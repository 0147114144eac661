package cacheguard

import (
	"fmt"
	"time"
)

// Result is a value together with its source and its freshness.
type Result[V any] struct {
	Value    V
	Status   Status
	NotFound bool // the value does not exist at the origin (the null sentinel)
	Local    bool // answered by the process-local tier
	// The store could not be used; in a load's previous value: the load's result will not be
	// stored.
	Degraded bool
	// The result's load began after this time, on the clock of this process' flights; 0: not known;
	// the field is at this place because it takes no extra space here.
	began uint32
	Age   time.Duration // since the value was stored, on the store's clock
	// Negative when stale; 0 for a result that was not stored, and for the result of UpdateEntry.
	FreshFor time.Duration
	// In a load's previous value: for how long the value may still be served if the load fails;
	// else 0.
	UsableFor time.Duration
	// The reason if a stale value was served because a load failed or could not begin, or because
	// the store is unavailable.
	Err error

	stamp int64 // when its load got its lease, on the store's clock; 0: not known
}

// later returns the result after a further time d: its age is greater by d, and FreshFor is smaller
// by d.
func (r Result[V]) later(d time.Duration) Result[V] {
	r.Age += d
	r.FreshFor -= d
	return r
}

// Status is the source of a [Result].
type Status uint8

const (
	StatusMiss Status = iota // no value was found
	StatusHit                // a fresh value from the store or the process-local tier
	// A value that is past its TTL or marked stale. While the store is unavailable, also a value of
	// the process-local tier that is not past its TTL. The value is not past its stale windows,
	// unless Peek returned it or it is a load's previous value.
	StatusStale
	StatusLoaded    // the load that this call began
	StatusCoalesced // the load of another call, in this process or another one
)

var statusNames = [...]string{"miss", "hit", "stale", "loaded", "coalesced"}

// String returns the status as a word.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// outcome is the result of a flight. All callers of the flight read the same outcome, so they must
// only change copies. With SoftTimeout each of thousands of waiting callers has a copy on its
// stack, so rarely set fields are in a separate struct, aside.
type outcome[V any] struct {
	res  Result[V]
	err  error
	also *aside[V]
}

// aside has the fields of an outcome that are rarely set.
type aside[V any] struct {
	// The result, if there is one, is only for the caller whose load made it; the others load for
	// themselves.
	unshared bool
	marker   *found[V] // the hit-for-miss marker, if unshared was read from the store
	several  *found[V] // a stale value that is for some callers only; see several.go
	note     []byte    // of the load's LoadTracer
	at       time.Time // if res is offered as a stale value: the time to which res.Age refers
}

// unshared reports whether each waiting caller must load for itself.
func (out *outcome[V]) unshared() bool { return out.also != nil && out.also.unshared }

// noted makes an outcome with the note of the load's [LoadTracer].
func noted[V any](res Result[V], err error, note []byte) outcome[V] {
	out := outcome[V]{res: res, err: err}
	if len(note) > 0 {
		out.also = &aside[V]{note: note}
	}
	return out
}

// withNotFound returns the error of a call with this result. "Does not exist" is not an error in
// the cache, but callers get ErrNotFound.
func (r *Result[V]) withNotFound(err error) error {
	if err == nil && r.NotFound {
		err = ErrNotFound
	}
	return err
}
