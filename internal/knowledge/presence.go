package knowledge

import (
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"
)

// Presence guesses whether the store has a value of a key. A process that expects no value can ask
// for the lease at once and save a trip. If this guess is wrong, the request for the lease finds
// the value, which costs more than a read. All times are on this machine's wall clock. If the clock
// is set, guesses are wrong.
//
// A key may have no value for one of these reasons: its last value was changed, its last value has
// expired, or the process knows nothing of the key, as in a new process. For each reason Presence
// measures how often the store had no value. If the store mostly had no value for the key's reason,
// Presence guesses that there is no value.
type Presence struct {
	shares [there]share
	// By the key's hash; each word has the first bits of the hash, and the time until which there
	// is a value, in ms since 1970.
	keys [1 << 12]atomic.Uint64
}

// reason is the reason why a key may have no value.
type reason uint8

const (
	unknown reason = iota
	changed
	ended
	there // no reason; there should be a value
)

const (
	instantBits = 42 // until the year 2109
	lastInstant = 1<<instantBits - 1

	// If two estimates of the end of one value differ by at most rounding, in ms, the later one is
	// not written. They differ because the process only estimates the store's clock.
	rounding = 100
)

// Expected says what this process knows of a key.
type Expected struct {
	place *atomic.Uint64
	mark  uint64 // identifies the key among the keys with the same place
	until uint64
	now   uint64
	why   reason
}

// Of returns the knowledge about a key. It loads one word that other processors seldom write.
func (p *Presence) Of(key string) Expected {
	hash := maphash.String(seed, key)
	e := Expected{
		place: &p.keys[hash%uint64(len(p.keys))], mark: hash | lastInstant,
		now: uint64(time.Now().UnixMilli()),
	}
	word := e.place.Load()
	switch e.until = word & lastInstant; {
	case word|lastInstant != e.mark || word == 0:
		e.why = unknown
	case e.until == 0:
		e.why = changed
	case e.until <= e.now:
		e.why = ended
	default:
		e.why = there
	}
	return e
}

// Lacks reports whether the store likely has no value of the key.
func (p *Presence) Lacks(e Expected) bool { return e.why != there && p.shares[e.why].most() }

// Looked records whether the store had a value, and for how long the value can be used. If the
// store had a value that can't be used, found is true.
func (p *Presence) Looked(e Expected, found bool, left time.Duration) {
	if e.why != there {
		p.shares[e.why].count(!found)
	}
	if found {
		if left <= 0 {
			left = ForGood
		}
		e.Stands(left)
	}
}

// Stands records that there is a value for this long.
func (e Expected) Stands(left time.Duration) {
	until := min(e.now+1+uint64(max(left, 0).Milliseconds()), lastInstant)
	if e.why == there && until-e.until+rounding <= 2*rounding { // so that a hit writes nothing
		return
	}
	e.place.Store(e.mark&^lastInstant | until)
}

// Gone records a change that has removed a key's value.
func (p *Presence) Gone(key string) {
	e := p.Of(key)
	e.place.Store(e.mark &^ lastInstant)
}

// ForGood is longer than the lifetime of any stored value.
const ForGood = time.Duration(math.MaxInt64)

// share is the share of the recent look-ups that found no value. Each reason for look-ups has its
// own. The share is stored as the difference from one half. It begins at one half, so that the
// first look-up decides.
type share struct{ v atomic.Int32 }

const whole = 1 << 15

// most reports whether the share is at least one half.
func (s *share) most() bool { return s.v.Load() >= 0 }

// count adds the last look-up with a weight of one eighth. If two look-ups end at the same moment,
// one may not be counted.
func (s *share) count(nothing bool) {
	was := s.v.Load()
	to := int32(-whole)
	if nothing {
		to = whole
	}
	// Otherwise the share is close enough to 0 or 1, and nothing is written.
	if is := was + (to-was)/8; is != was {
		s.v.Store(is)
	}
}
