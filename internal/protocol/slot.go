package protocol

import (
	"math"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Slot is what the store has of one key: its value, and the lease of the running load or the record
// of how the last load ended. Each method is one atomic step of the store. A step gets the present
// instant, and returns the answer and what the listening processes are told. A Slot is a comparable
// value, so a copy of it is a state.
//
// Instants are durations on the clock of the store; the zero of that clock doesn't matter.
// Something with an Until exists only before that instant.
type Slot struct {
	Frame   string
	Until   time.Duration // of the frame
	Lease   Lease
	Record  Record // a key has a lease or a record, never both
	Waiters Waiters
}

// Lease is the right to load the key.
type Lease struct {
	Token  ID
	Number int64 // of the grant; no two grants have the same number
	Until  time.Duration
}

// Waiters are the processes that wait for the end of a lease and want a message. They are kept for
// a while after the lease, so that they get a message about the load that replaces a dead leader's,
// unless they have asked again before.
type Waiters struct {
	Inboxes uint64        // a bit for each process
	Until   time.Duration // some time after the lease
}

// waitersStay is how much longer than the lease Waiters are kept.
const waitersStay = time.Second

// Record is how a load ended that has left no value.
type Record struct {
	Load ID
	Ending
	Backoff time.Duration // until this instant every request is answered with the ending
	Until   time.Duration
}

// Ending is what a record, or a message, says about the end of a load without a value.
type Ending struct {
	Kind              uint8 // the slot doesn't use it
	Text, Frame, Note string
	Failures          int
}

// Question is a request for the lease.
type Question struct {
	Token   ID
	Number  int64 // of the grant, if the lease is granted
	TTL     time.Duration
	Seen    string // the id of the value that counts as absent
	Awaited ID     // the load that the asker has waited for
	Inbox   uint64 // the bit of the asker, if it waits for a message
}

// Reply is the answer to a [Question].
type Reply struct {
	Kind   Kind          // Granted, Held, Value or Outcome
	Number int64         // Granted: the grant's number, an earlier one if the asker already has the lease
	Stands bool          // Granted: the value that the asker has seen is still stored
	Load   ID            // Held, Outcome: the load with the lease, or of the record
	Left   time.Duration // Held, Outcome: time left of the lease, or of the back-off
	Frame  string        // Value
	Ending Ending        // Outcome; Granted: of the record that the lease replaced
}

// Tells is the message that a step sends. A change is sent to all processes that listen, every
// other message to the processes that were in Slot.Waiters before the step.
type Tells uint8

const (
	TellsNothing  Tells = iota // no message, or no process waits for one
	TellsFilled                // a load has stored a value
	TellsEnding                // a load has ended without one
	TellsReleased              // a load has given up its lease
	TellsChanged               // the key was changed
)

// Ask asks for the lease. If there is a value that the asker hasn't seen, the answer is the value,
// even if another load refreshes it or has failed to do so. If the asker already has the lease, it
// is granted again with the same number, because the first answer may have been lost.
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

// grant replaces any lease or record by a new lease.
func (s *Slot) grant(now time.Duration, token ID, number int64, ttl time.Duration) {
	s.Record = Record{}
	s.leaseUntil(Lease{Token: token, Number: number, Until: After(now, ttl)})
}

// leaseUntil sets the lease, and keeps Waiters for longer than it lasts.
func (s *Slot) leaseUntil(l Lease) {
	s.Lease = l
	if s.Waiters.Until > 0 {
		s.Waiters.Until = After(l.Until, waitersStay)
	}
}

// Fill stores a frame and ends the lease, if the lease still carries the grant. It returns Stored,
// or Gone or Taken if it is refused because there is no lease or another one. If it finds a value
// of its own load, it is a copy of a fill that was carried out, and returns Stored.
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

// Conclude ends the lease without a value, if the lease still carries the grant, and leaves a
// record for the time keep, if that is not zero. With drop it removes the value, too.
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

// Renew sets the lease's remaining time, if the lease still carries the grant. It returns Renewed,
// Gone or Taken.
func (s *Slot) Renew(now time.Duration, token ID, number int64, ttl time.Duration) Kind {
	*s = s.At(now)
	k := s.holding(token, number)
	if k == Renewed {
		s.leaseUntil(Lease{Token: token, Number: number, Until: After(now, ttl)})
	}
	return k
}

// Release removes the lease if it carries the token. It ignores the grant's number, which a process
// that got no answer doesn't know.
func (s *Slot) Release(now time.Duration, token ID) Tells {
	*s = s.At(now)
	if s.Lease.Until == 0 || s.Lease.Token != token {
		return TellsNothing
	}
	return s.endLease(TellsReleased)
}

// Claim removes the value, except for the remnant of a value with tags, and takes the lease over
// from any other load. A copy of a claim keeps the number of the first claim, because with a new
// number the fill of the first would be refused. It also keeps the end of the lease, which the
// claimer counts from before its request.
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
	s.Waiters = Waiters{} // they get the message of the change and ask again
	return s.Lease.Number, TellsChanged
}

// Invalidate removes everything.
func (s *Slot) Invalidate() Tells {
	*s = Slot{}
	return TellsChanged
}

// MarkStale writes the mark into the frame, if the bytes at its place are all zero, so that an
// earlier mark stays. It ends the lease, because the running load may be from before the change
// that the mark is for.
func (s *Slot) MarkStale(now time.Duration, at int, mark string) Tells {
	*s = s.At(now)
	if f, end := s.Frame, at+len(mark); len(f) >= end && strings.Trim(f[at:end], "\x00") == "" {
		s.Frame = f[:at] + mark + f[end:]
	}
	s.Lease, s.Record, s.Waiters = Lease{}, Record{}, Waiters{}
	return TellsChanged
}

// At returns the slot without what has ended by now. What has ended is zero, so that equal states
// are equal values.
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

// endLease ends the lease. It returns the message, or TellsNothing if no process waits.
func (s *Slot) endLease(tells Tells) Tells {
	if s.Waiters.Inboxes == 0 {
		tells = TellsNothing
	}
	s.Lease, s.Waiters = Lease{}, Waiters{}
	return tells
}

// holding says whether the lease carries the grant (Renewed), there is no lease (Gone), or another
// one (Taken).
func (s *Slot) holding(token ID, number int64) Kind {
	switch {
	case s.Lease.Until == 0:
		return Gone
	case s.Lease.Token == token && s.Lease.Number == number:
		return Renewed
	}
	return Taken
}

// LoadOf returns the bytes at the place where a frame has the id of its load: fewer or none if the
// frame is too short.
func LoadOf(frame string) string {
	const start, end = 2, 18
	return frame[min(start, len(frame)):min(end, len(frame))]
}

// After returns the instant ttl after now. It doesn't overflow, because a forged ttl must not
// become an instant in the past.
func After(now, ttl time.Duration) time.Duration {
	if ttl > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + ttl
}
