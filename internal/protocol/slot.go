package protocol

import (
	"math"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Slot is what the store has of one key: its value, and the lease of the load that runs or the
// record of how the last one ended. Each method is one atomic step of the store. A step is told the
// instant, and says what its asker is answered and what everybody who listens is told. A Slot is a
// comparable value, so that a copy of it is a state.
//
// Instants are durations on the clock of the store, from wherever that counts. What has an Until is
// there before it.
type Slot struct {
	Frame   string
	Until   time.Duration // of the frame
	Lease   Lease
	Record  Record // of a key there is a lease or a record, never both
	Waiters Waiters
}

// Lease is the right to load the key.
type Lease struct {
	Token  ID
	Number int64 // of the grant: no two have the same
	Until  time.Duration
}

// Waiters are the processes that wait for the end of a lease and want to be told. Those whose
// leader has died are told of the load that takes its place, unless they have asked again before.
type Waiters struct {
	Inboxes uint64        // a bit for each
	Until   time.Duration // some time after the lease
}

// waitersStay is for how much longer than the lease.
const waitersStay = time.Second

// Record is how a load ended that left no value.
type Record struct {
	Load ID
	Ending
	Backoff time.Duration // until this instant everybody is given the ending
	Until   time.Duration
}

// Ending is what there is to say of that.
type Ending struct {
	Kind              uint8 // the slot doesn't look at it
	Text, Frame, Note string
	Failures          int
}

// Question is a question for the lease.
type Question struct {
	Token   ID
	Number  int64 // of the grant, if there is one
	TTL     time.Duration
	Seen    string // the id of the value that counts as absent
	Awaited ID     // the load that the asker has waited for
	Inbox   uint64 // the bit of an asker that waits
}

// Reply is the answer to a Question.
type Reply struct {
	Kind   Kind          // Granted, Held, Value or Outcome
	Number int64         // Granted: of the grant in place
	Stands bool          // Granted: the value that the asker has seen is still there
	Load   ID            // Held, Outcome: whose lease, or whose record
	Left   time.Duration // Held, Outcome: of the lease, or of the back-off
	Frame  string        // Value
	Ending Ending        // Outcome; Granted: of the record whose place the lease took
}

// Tells is what a step tells: a change everybody who listens, all else the processes that wait,
// which were Slot.Waiters before it.
type Tells uint8

const (
	TellsNothing  Tells = iota // or there is nobody to tell
	TellsFilled                // a load has stored a value
	TellsEnding                // a load has ended without one
	TellsReleased              // a load has given its lease up
	TellsChanged               // the key was changed
)

// Ask asks for the lease. A value that the asker hasn't seen comes first: beside it somebody may
// refresh it, or have failed to. A lease that is the asker's own is granted again with the number
// it has, for the first answer may have been lost.
func (s *Slot) Ask(now time.Duration, q Question) Reply {
	*s = s.At(now)
	mine := s.Lease.Until > 0 && s.Lease.Token == q.Token
	id := LoadOf(s.Frame)
	if id != "" && id != q.Seen && !mine {
		return Reply{Kind: Value, Frame: s.Frame}
	}
	stands := id != "" && id == q.Seen
	if mine {
		return Reply{Kind: Granted, Number: s.Lease.Number, Stands: stands}
	}
	if s.Lease.Until > 0 {
		if q.Inbox != 0 {
			s.Waiters.Inboxes |= q.Inbox
			s.Waiters.Until = After(s.Lease.Until, waitersStay)
		}
		return Reply{Kind: Held, Load: s.Lease.Token, Left: s.Lease.Until - now}
	}
	if r := s.Record; r.Until > 0 && (now < r.Backoff || r.Load == q.Awaited) {
		return Reply{Kind: Outcome, Load: r.Load, Left: max(min(r.Backoff, r.Until)-now, 0), Ending: r.Ending}
	}
	before := s.Record.Ending
	s.grant(now, q.Token, q.Number, q.TTL)
	return Reply{Kind: Granted, Number: q.Number, Ending: before, Stands: stands}
}

// grant puts a lease in the place of whatever lease or record is there.
func (s *Slot) grant(now time.Duration, token ID, number int64, ttl time.Duration) {
	s.Record = Record{}
	s.leaseUntil(Lease{Token: token, Number: number, Until: After(now, ttl)})
}

// leaseUntil puts a lease there, and keeps those who wait for longer than it lasts.
func (s *Slot) leaseUntil(l Lease) {
	s.Lease = l
	if s.Waiters.Until > 0 {
		s.Waiters.Until = After(l.Until, waitersStay)
	}
}

// Fill stores a frame and ends the lease, if that still carries the grant: Stored, or refused
// because the lease is Gone or Taken. A fill that finds a value of its own load is a copy of one
// that was stored.
func (s *Slot) Fill(now time.Duration, token ID, number int64, frame string, ttl time.Duration) (Kind, Tells) {
	*s = s.At(now)
	if k := s.holding(token, number); k != Renewed {
		if LoadOf(s.Frame) == string(token[:]) {
			k = Stored
		}
		return k, TellsNothing
	}
	s.Frame, s.Until = frame, After(now, ttl)
	return Stored, s.endLease(TellsFilled)
}

// Conclude ends the lease without a value, if it still carries the grant, and leaves a record for
// keep, unless that is zero. With drop the value goes, too.
func (s *Slot) Conclude(now time.Duration, token ID, number int64, e Ending, drop bool, keep, backoff time.Duration) Tells {
	*s = s.At(now)
	if s.holding(token, number) != Renewed {
		return TellsNothing
	}
	if drop {
		s.dropFrame()
	}
	tells := s.endLease(TellsEnding)
	if keep > 0 {
		s.Record = Record{Load: token, Ending: e, Backoff: After(now, backoff), Until: After(now, keep)}
	}
	return tells
}

// Renew sets the lease's remaining time, if it still carries the grant: Renewed, Gone or Taken.
func (s *Slot) Renew(now time.Duration, token ID, number int64, ttl time.Duration) Kind {
	*s = s.At(now)
	k := s.holding(token, number)
	if k == Renewed {
		s.leaseUntil(Lease{Token: token, Number: number, Until: After(now, ttl)})
	}
	return k
}

// Release removes the lease if it carries the token, whatever the number of its grant.
func (s *Slot) Release(now time.Duration, token ID) Tells {
	*s = s.At(now)
	if s.Lease.Until == 0 || s.Lease.Token != token {
		return TellsNothing
	}
	return s.endLease(TellsReleased)
}

// Claim removes the value, but for what is left of one with tags, and takes the lease over from
// whoever holds it. A copy of a claim keeps the number of the first: with a new one the first one's
// fill would be refused. It keeps the time, too, which the claimer counts from before it asked.
func (s *Slot) Claim(now time.Duration, token ID, number int64, ttl time.Duration) (int64, Tells) {
	*s = s.At(now)
	if left := frame.Remnant([]byte(s.Frame)); left != nil {
		s.Frame = string(left)
	} else {
		s.dropFrame()
	}
	if s.Lease.Until == 0 || s.Lease.Token != token {
		s.grant(now, token, number, ttl)
	}
	s.Waiters = Waiters{} // who hears of the change asks again
	return s.Lease.Number, TellsChanged
}

// Invalidate removes everything.
func (s *Slot) Invalidate() Tells {
	*s = Slot{}
	return TellsChanged
}

// MarkStale writes the mark into the frame where as many zeros stand, and ends the lease: what it
// loads may be older than what the mark is for.
func (s *Slot) MarkStale(now time.Duration, at int, mark string) Tells {
	*s = s.At(now)
	if f, end := s.Frame, at+len(mark); len(f) >= end && strings.Trim(f[at:end], "\x00") == "" {
		s.Frame = f[:at] + mark + f[end:]
	}
	s.Lease, s.Record, s.Waiters = Lease{}, Record{}, Waiters{}
	return TellsChanged
}

// At is the slot without what has ended by now. What is not there is zero.
func (s Slot) At(now time.Duration) Slot {
	if s.Until <= now {
		s.dropFrame()
	}
	if s.Lease.Until <= now {
		s.Lease = Lease{}
	}
	if s.Record.Until <= now {
		s.Record = Record{}
	}
	if s.Waiters.Until <= now {
		s.Waiters = Waiters{}
	}
	return s
}

func (s *Slot) dropFrame() { s.Frame, s.Until = "", 0 }

// endLease ends the lease, and tells that if somebody wants to be told.
func (s *Slot) endLease(tells Tells) Tells {
	if s.Waiters.Inboxes == 0 {
		tells = TellsNothing
	}
	s.Lease, s.Waiters = Lease{}, Waiters{}
	return tells
}

// holding reports whether the lease carries the grant: Renewed, or it is Gone or Taken.
func (s *Slot) holding(token ID, number int64) Kind {
	switch {
	case s.Lease.Until == 0:
		return Gone
	case s.Lease.Token == token && s.Lease.Number == number:
		return Renewed
	}
	return Taken
}

// LoadOf returns what stands where a frame has the id of its load: nothing if it is too short.
func LoadOf(frame string) string {
	const start, end = 2, 18
	return frame[min(start, len(frame)):min(end, len(frame))]
}

// After is the instant when what begins now and lasts for ttl is over.
func After(now, ttl time.Duration) time.Duration {
	if ttl > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + ttl
}
