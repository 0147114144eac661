package protocol

import (
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// ClockSlack is how far in the future a value may have been made without counting as nonsense:
// processes estimate the store's clock, each with an error of up to half a round trip.
const ClockSlack = 250 * time.Millisecond

// stampsAhead is how far in the future the stamp of a value may be. Generations go on from where
// they were when the store's clock is set back, but a store lets none be further ahead than a day:
// what is loaded then could not be invalidated by tag before its TTL is over once they are put
// right.
const stampsAhead = 24*time.Hour + time.Second

// TooFarAhead reports whether a value has a stamp that no load can have been given by now. It is no
// value then.
func TooFarAhead(stamp int64, now time.Time) bool { return stamp > now.Add(stampsAhead).UnixMicro() }

// Counts reports whether a value with this stamp is from after an invalidation: of its cache, or of
// one of its tags. In the same microsecond nobody knows which was first.
func Counts(stamp, generation int64) bool { return stamp > generation }

// Judge says how old a value is, for how long its soft TTL has been over, and what it is good for.
// A mark ends the soft TTL early. An age that can't be (the clock was set, or the store fell back
// to another machine with another clock) is good for nothing, not for ever.
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

// GoodFor is what a value is good for whose soft TTL has been over for so long.
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
