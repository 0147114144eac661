package protocol

import (
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// ClockSlack is how far in the future a value may have been made and still be used. Each process
// estimates the store's clock, with an error of up to half a round trip.
const ClockSlack = 250 * time.Millisecond

// stampsAhead is how far in the future the stamp of a value may be. If the store's clock is set
// back, generations go on from where they were, so stamps may be ahead of the clock. A store allows
// a day at most. A value with a later stamp could not be invalidated by tag after the generations
// are put right.
const stampsAhead = 24*time.Hour + time.Second

// TooFarAhead reports whether a value has a stamp that no load can have got by now. Such a value is
// not used.
func TooFarAhead(stamp int64, now time.Time) bool { return stamp > now.Add(stampsAhead).UnixMicro() }

// Counts reports whether a value with this stamp is from after an invalidation of its cache or of
// one of its tags. Equal times count as before, because within a microsecond the order is not
// known.
func Counts(stamp, generation int64) bool { return stamp > generation }

// Judge says how old a value is, for how long its soft TTL has been over, and what it may be used
// for. A stale mark ends the soft TTL early. If the age is impossible, because the clock was set or
// a server with another clock has taken over, the value may not be served: otherwise it might be
// served for ever.
func Judge(h frame.Header, now time.Time) (age, over time.Duration, good Use) {
	age = now.Sub(h.Created)
	over = age - h.Soft
	if age < -ClockSlack {
		return age, over, Shown
	}
	age = max(age, 0)
	over = age - h.Soft
	if !h.Marked.IsZero() {
		over = max(over, now.Sub(h.Marked), 0)
	}
	return age, over, GoodFor(over, h.Revalidate, h.IfError)
}

// GoodFor returns what a value may be used for if its soft TTL has been over for so long. A
// negative time means that it is not over.
func GoodFor(over, revalidate, ifError time.Duration) Use {
	switch {
	case over < 0:
		return Fresh
	case over < revalidate:
		return Meanwhile
	case over < ifError:
		return OnError
	}
	return Shown
}
