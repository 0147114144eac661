package protocol

import (
	"strings"
	"testing"
	"time"
)

func id(n byte) (id ID) {
	id[0] = n
	return id
}

// frameOf is a frame of a load, with a body.
func frameOf(load ID, body string) string { return "v0" + string(load[:]) + body }

// TestSlot shows what no test of a store can show on every store, for want of its clock or of its
// bytes.
func TestSlot(t *testing.T) {
	const ttl = 10 * time.Second
	t.Run("a value too short for an id is none", func(t *testing.T) {
		for _, frame := range []string{"", "v", "v0"} {
			s := Slot{Frame: frame, Until: ttl}
			if r := s.Ask(1, Question{Token: id(1), Number: 1, TTL: ttl, Seen: string(make([]byte, 16))}); r.Kind != Granted {
				t.Errorf("beside %q the answer is %+v, want the lease", frame, r)
			}
		}
	})
	t.Run("a copy of a claim gives it no more time", func(t *testing.T) {
		var s Slot
		first, _ := s.Claim(0, id(1), 1, ttl)
		s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl, Inbox: 1})
		again, _ := s.Claim(2, id(1), 3, ttl)
		if want := (Lease{Token: id(1), Number: 1, Until: ttl}); first != 1 || again != 1 || s.Lease != want {
			t.Errorf("granted %d, then %d: %+v, want %+v", first, again, s.Lease, want)
		}
	})
	t.Run("a back-off ends with its record", func(t *testing.T) {
		var s Slot
		s.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
		s.Conclude(0, id(1), 1, Ending{Failures: 3}, false, ttl, 2*ttl)
		if r := s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Outcome || r.Left != ttl-1 {
			t.Errorf("while the record is there: %+v, want it for %v", r, ttl-1)
		}
		if r := s.Ask(ttl, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Granted {
			t.Errorf("after the record: %+v, want the lease", r)
		}
	})
	t.Run("what a lease replaces is told once", func(t *testing.T) {
		var s Slot
		s.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
		s.Conclude(0, id(1), 1, Ending{Failures: 3}, false, ttl, 0)
		if r := s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Granted || r.Ending.Failures != 3 {
			t.Errorf("the first: %+v, want granted after 3 failures", r)
		}
		if r := s.Ask(1, Question{Token: id(2), Number: 3, TTL: ttl}); r.Kind != Granted || r.Ending.Failures != 0 || r.Number != 2 {
			t.Errorf("its copy: %+v, want granted with number 2", r)
		}
	})
	t.Run("who waits is told in the end, whoever loads", func(t *testing.T) {
		var s Slot
		lead := func(now time.Duration, token byte) {
			s.Ask(now, Question{Token: id(token), Number: int64(token), TTL: ttl})
		}
		lead(1, 1)
		s.Ask(2, Question{Token: id(2), Number: 2, TTL: ttl, Inbox: 1})
		s.Ask(3, Question{Token: id(3), Number: 3, TTL: ttl, Inbox: 4})
		if s.Renew(ttl, id(1), 1, ttl) != Renewed || s.Waiters != (Waiters{5, 2*ttl + waitersStay}) {
			t.Errorf("after a renewal at %v those who wait are %+v", ttl, s.Waiters)
		}
		lead(2*ttl+waitersStay/2, 4) // the leader has died
		if s.Waiters != (Waiters{5, 3*ttl + 3*waitersStay/2}) {
			t.Errorf("of the next load wait %+v", s.Waiters)
		}
		if _, tells := s.Fill(3*ttl, id(4), 4, frameOf(id(4), ""), ttl); tells != TellsFilled || s.Waiters != (Waiters{}) {
			t.Errorf("the next load tells %v, and leaves %+v", tells, s.Waiters)
		}
	})
	t.Run("nobody waits for ever", func(t *testing.T) {
		var s Slot
		s.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
		s.Ask(0, Question{Token: id(2), Number: 2, TTL: ttl, Inbox: 1})
		if s = s.At(ttl + waitersStay); s != (Slot{}) {
			t.Errorf("%+v is left", s)
		}
	})
	t.Run("a lease is over at its end", func(t *testing.T) {
		s := Slot{Lease: Lease{Token: id(1), Number: 1, Until: ttl}}
		if r := s.Ask(ttl-1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Held || r.Left != 1 {
			t.Errorf("just before it: %+v, want held for a nanosecond", r)
		}
		if k := s.Renew(ttl, id(1), 1, ttl); k != Gone {
			t.Errorf("at its end it is renewed: %v", k)
		}
		if r := s.Ask(ttl, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Granted {
			t.Errorf("at its end: %+v, want the lease", r)
		}
	})
	t.Run("a mark stays", func(t *testing.T) {
		clean := frameOf(id(1), "\x00\x00body")
		s := Slot{Frame: clean, Until: ttl}
		s.MarkStale(1, 18, "m1")
		s.MarkStale(2, 18, "m2")
		if want := strings.Replace(clean, "\x00\x00body", "m1body", 1); s.Frame != want || s.Until != ttl {
			t.Errorf("%q until %v, want %q", s.Frame, s.Until, want)
		}
		s.Frame = "short"
		if s.MarkStale(3, 18, "m1"); s.Frame != "short" {
			t.Errorf("a frame without room is %q", s.Frame)
		}
	})
	t.Run("an end is never before its beginning", func(t *testing.T) {
		var s Slot
		s.Claim(ttl, id(1), 1, 1<<63-1)
		if s.Lease.Until != 1<<63-1 {
			t.Errorf("a lease for ever ends at %v", s.Lease.Until)
		}
	})
}
