package protocol

import (
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// ClockSlack is how far in the future a value may have been made, and how much two estimates of the
// store's clock may differ. Each process estimates this clock with an error of up to half a round
// trip.
const ClockSlack = 250 * time.Millisecond

// stampsAhead is how far in the future the stamp of a value may be. If the store's clock is set
// back, generations continue from where they were. A store lets no generation be more than a day
// ahead. If a generation were further ahead and were corrected later, no tag could invalidate the
// values that were loaded in between, until their TTL is over.
const stampsAhead = 24*time.Hour + time.Second

// TooFarAhead reports whether a stamp is so far in the future that no load can have got it by now.
// A value with such a stamp counts as absent, and a token with such a time demands nothing.
func TooFarAhead(stamp int64, now time.Time) bool {
	return stamp > now.Add(stampsAhead).UnixMicro()
}

// Counts reports whether the load of a value began after an invalidation of its cache or of one of
// its tags. If the two times are equal, it is unknown which came first, and the value is invalid.
func Counts(stamp, generation int64) bool { return stamp > generation }

// Judge returns the age of a value, the time since the end of its soft TTL, and what the value is
// good for. A stale mark ends the soft TTL early. A value may seem to have been made more than
// ClockSlack in the future, because the clock was set, or because another server with another clock
// has taken over. Such a value is only shown to the next load, because it could otherwise count as
// fresh for ever.
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

// GoodFor returns what a value is good for. over is the time since the end of its soft TTL, and is
// negative before this end. revalidate and ifError are the value's stale windows.
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
