package protocol

import (
	"math"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// Slot is everything that the store has about one key: the value, and the lease of the running load
// or the record of how the last load ended. Each method is one atomic step of the store. It gets
// the present time, and returns the answer and the message to send. A Slot is a comparable value,
// so a copy of it is a state that the explorer can keep.
//
// All times are durations since some fixed moment, on the clock of the store. A part of the slot
// exists only before its Until.
type Slot struct {
	Frame   string
	Until   time.Duration // when the frame expires
	Lease   Lease
	Record  Record // a key has a lease or a record, never both
	Waiters Waiters
}

// Lease is the right to load the key.
type Lease struct {
	Token  ID
	Number int64 // number of the grant; no two grants have the same number
	Until  time.Duration
}

// Waiters are the processes that wait for the end of a lease and get a message about it. They stay
// for a while after the lease has ended. So if the process that had the lease has died, they get
// the message about the end of the next load, even if they don't ask again.
type Waiters struct {
	Inboxes uint64        // a bit for each process
	Until   time.Duration // WaitersStay after the end of the lease
}

// WaitersStay is how much longer than a lease its list of waiters is kept, because waiters of a
// dead leader may not have asked again yet.
const WaitersStay = time.Second

// Record says how a load ended that left no value.
type Record struct {
	Load ID
	Ending
	// Until this time, every process that asks for the lease gets the ending instead.
	Backoff time.Duration
	Until   time.Duration
}

// Ending is the content of a record.
type Ending struct {
	Kind              uint8 // the slot doesn't look at it
	Text, Frame, Note string
	Failures          int
}

// Question is a request for the lease.
type Question struct {
	Token   ID
	Number  int64 // number of the grant, if the lease is granted
	TTL     time.Duration
	Seen    string // the id of a value that the asker has seen already, and that counts as absent
	Awaited ID     // the load that the asker has waited for
	Inbox   uint64 // the bit of an asker that will wait; 0: it won't
}

// Reply is the answer to a Question.
type Reply struct {
	Kind   Kind  // Granted, Held, Value or Outcome
	Number int64 // Granted: number of the grant
	Stands bool  // Granted: the value that the asker has seen is still there
	// Held: the load that has the lease; Outcome: the load that left the record.
	Load   ID
	Left   time.Duration // Held: the time left of the lease; Outcome: the time left of the back-off
	Frame  string        // Value
	Ending Ending        // Outcome; Granted: the content of the record that the lease has replaced
}

// Tells is the message that a step sends. A change is sent to all processes that listen. All other
// messages are sent to the processes that were in Slot.Waiters before the step.
type Tells uint8

const (
	TellsNothing  Tells = iota // no message, or no process that waits for one
	TellsFilled                // a load has stored a value
	TellsEnding                // a load has ended without a value
	TellsReleased              // a load has released its lease
	TellsChanged               // the key was changed
)

// Ask is a request for the lease. If there is a value that the asker hasn't seen, the answer is
// this value, even if there is a lease or a record, too. If the asker has the lease already, its
// request is a copy, because the first answer may have been lost. Then the answer is the same grant
// again.
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
			s.Waiters.Until = After(s.Lease.Until, WaitersStay)
		}
		return Reply{Kind: Held, Load: s.Lease.Token, Left: s.Lease.Until - now}
	}
	if r := s.Record; r.Until > 0 && (now < r.Backoff || r.Load == q.Awaited) {
		return Reply{
			Kind: Outcome, Load: r.Load, Left: max(min(r.Backoff, r.Until)-now, 0),
			Ending: r.Ending,
		}
	}
	before := s.Record.Ending
	s.grant(now, q.Token, q.Number, q.TTL)
	return Reply{Kind: Granted, Number: q.Number, Ending: before, Stands: stands}
}

// grant replaces the lease or the record, if there is one, by a new lease.
func (s *Slot) grant(now time.Duration, token ID, number int64, ttl time.Duration) {
	s.Record = Record{}
	s.leaseUntil(Lease{Token: token, Number: number, Until: After(now, ttl)})
}

// leaseUntil sets the lease. If there are waiters, it keeps them until WaitersStay after the end of
// the lease.
func (s *Slot) leaseUntil(l Lease) {
	s.Lease = l
	if s.Waiters.Until > 0 {
		s.Waiters.Until = After(l.Until, WaitersStay)
	}
}

// Fill stores a frame and ends the lease, if the lease still has this grant. It returns Stored, or
// Gone or Taken if the fill is refused. If the fill finds a value of its own load, it is a copy of
// a fill that was carried out, and Fill returns Stored.
func (s *Slot) Fill(
	now time.Duration, token ID, number int64, frame string, ttl time.Duration,
) (Kind, Tells) {
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

// Conclude ends the lease without a value, if the lease still has this grant. Unless keep is zero,
// it leaves a record for the time keep. If drop is true, it removes the value, too.
func (s *Slot) Conclude(
	now time.Duration, token ID, number int64, e Ending, drop bool, keep, backoff time.Duration,
) Tells {
	*s = s.At(now)
	if s.holding(token, number) != Renewed {
		return TellsNothing
	}
	if drop {
		s.dropFrame()
	}
	tells := s.endLease(TellsEnding)
	if keep > 0 {
		s.Record = Record{
			Load: token, Ending: e, Backoff: After(now, backoff), Until: After(now, keep),
		}
	}
	return tells
}

// Renew sets the remaining time of the lease, if the lease still has this grant. It returns
// Renewed, Gone or Taken.
func (s *Slot) Renew(now time.Duration, token ID, number int64, ttl time.Duration) Kind {
	*s = s.At(now)
	k := s.holding(token, number)
	if k == Renewed {
		s.leaseUntil(Lease{Token: token, Number: number, Until: After(now, ttl)})
	}
	return k
}

// Release removes the lease if it has this token, with any number.
func (s *Slot) Release(now time.Duration, token ID) Tells {
	*s = s.At(now)
	if s.Lease.Until == 0 || s.Lease.Token != token {
		return TellsNothing
	}
	return s.endLease(TellsReleased)
}

// Claim removes the value, and takes over the lease even if another load has it. If the value has
// tags, its remnant stays. A copy of a claim doesn't change the number of the lease, because the
// fill carries the first number. It doesn't change the end of the lease either, because the claimer
// counts the lease from before its first request.
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
	s.Waiters = Waiters{} // they get the message about the change and ask again
	return s.Lease.Number, TellsChanged
}

// Invalidate removes everything that the store has about the key.
func (s *Slot) Invalidate() Tells {
	*s = Slot{}
	return TellsChanged
}

// MarkStale writes the mark into the frame at the offset at, if all bytes at this place are zero.
// It also ends the lease, because the running load may have read the origin before the change for
// which the value is marked.
func (s *Slot) MarkStale(now time.Duration, at int, mark string) Tells {
	*s = s.At(now)
	if f, end := s.Frame, at+len(mark); len(f) >= end && strings.Trim(f[at:end], "\x00") == "" {
		s.Frame = f[:at] + mark + f[end:]
	}
	s.Lease, s.Record, s.Waiters = Lease{}, Record{}, Waiters{}
	return TellsChanged
}

// At returns the slot without the parts that have ended by now. These parts are zero.
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

// endLease ends the lease. It returns the message to send, or TellsNothing if no process waits.
func (s *Slot) endLease(tells Tells) Tells {
	if s.Waiters.Inboxes == 0 {
		tells = TellsNothing
	}
	s.Lease, s.Waiters = Lease{}, Waiters{}
	return tells
}

// holding returns Renewed if the lease has this grant, Gone if there is no lease, and Taken if
// another grant has replaced it.
func (s *Slot) holding(token ID, number int64) Kind {
	switch {
	case s.Lease.Until == 0:
		return Gone
	case s.Lease.Token == token && s.Lease.Number == number:
		return Renewed
	}
	return Taken
}

// LoadOf returns the id of the load that made a frame. If the frame is too short, it returns the
// bytes that are there.
func LoadOf(frame string) string {
	const start, end = 2, 18
	return frame[min(start, len(frame)):min(end, len(frame))]
}

// After returns now plus ttl, or the latest possible time if the sum is too large.
func After(now, ttl time.Duration) time.Duration {
	if ttl > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + ttl
}
