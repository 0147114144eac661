package protocol

import (
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// ClockSlack is how far in the future a value may have been made without counting as nonsense:
// processes estimate the store's clock, each with an error of up to half a round trip.
const ClockSlack = 250 * time.Millisecond

// stampsAhead is how far in the future the stamp of a value may be. If the store's clock is set
// back, generations continue from where they were. A store lets no generation be more than a day
// ahead. If one were, and were put right later, no tag could invalidate the values that were loaded
// in the meantime before their TTL is over.
const stampsAhead = 24*time.Hour + time.Second

// TooFarAhead reports whether a value has a stamp that no load can have been given by now. It is no
// value then.
func TooFarAhead(stamp int64, now time.Time) bool { return stamp > now.Add(stampsAhead).UnixMicro() }

// Counts reports whether a value with this stamp is from after an invalidation: of its cache, or of
// one of its tags. In the same microsecond nobody knows which was first.
func Counts(stamp, generation int64) bool { return stamp > generation }

// Judge returns how old a value is, for how long its soft TTL has been over, and what it may be used
// for. A mark ends the soft TTL early. If a value was made more than ClockSlack in the future, it is
// only shown to the next load: the clock was set, or the store fell back to another machine with
// another clock. Otherwise such a value could count as fresh for ever.
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
