package knowledge

import (
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"
)

// Presence guesses whether a store has a value of a key, so that a process that expects none can
// ask for the lease at once and save a trip. A wrong guess costs that a value comes by a script.
// Times are those of this machine's wall clock: if it is set, guesses are wrong.
//
// A key may be missing for a reason: its last value was changed or has ended, or nothing is known
// of it, as of all keys of a new process. For each reason it is measured how often there was
// nothing. A guess is made for a reason as long as mostly there was.
type Presence struct {
	shares [there]share
	keys   [1 << 12]atomic.Uint64 // by the key's hash: its first bits, and until when there is a value, in ms since 1970
}

// reason is why there may be no value of a key.
type reason uint8

const (
	unknown reason = iota
	changed
	ended
	there // no reason at all
)

const (
	instantBits = 42 // until the year 2109
	lastInstant = 1<<instantBits - 1

	// rounding is by how much the end of a value may differ from one look to the next, by what a
	// process knows of the store's clock.
	rounding = 100
)

// Expected is what is known of a key.
type Expected struct {
	place *atomic.Uint64
	mark  uint64 // of the key, in its place
	until uint64
	now   uint64
	why   reason
}

// Of says what is known of a key: one load of a word that other processors seldom write.
func (p *Presence) Of(key string) Expected {
	hash := maphash.String(seed, key)
	e := Expected{place: &p.keys[hash%uint64(len(p.keys))], mark: hash | lastInstant, now: uint64(time.Now().UnixMilli())}
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

// Looked takes note of whether it had one, and for how long that can be used. One that can't stands
// in the way of a guess all the same.
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

// Stands takes note of a value that is there for so long.
func (e Expected) Stands(left time.Duration) {
	until := min(e.now+1+uint64(max(left, 0).Milliseconds()), lastInstant)
	if e.why == there && until-e.until+rounding <= 2*rounding { // a hit writes nothing
		return
	}
	e.place.Store(e.mark&^lastInstant | until)
}

// Gone takes note of a change that has removed a key's value.
func (p *Presence) Gone(key string) {
	e := p.Of(key)
	e.place.Store(e.mark &^ lastInstant)
}

// ForGood is longer than any value stands.
const ForGood = time.Duration(math.MaxInt64)

// share is of the last looks for one reason those that found nothing: how far it is from half,
// which it is in the beginning, so that one look decides then.
type share struct{ v atomic.Int32 }

const whole = 1 << 15

// most reports whether it is at least half.
func (s *share) most() bool { return s.v.Load() >= 0 }

// count counts an eighth for the last look. Of two at the same moment one may be forgotten.
func (s *share) count(nothing bool) {
	was := s.v.Load()
	to := int32(-whole)
	if nothing {
		to = whole
	}
	if is := was + (to-was)/8; is != was { // else it is as good as all or none, and nothing is written
		s.v.Store(is)
	}
}
