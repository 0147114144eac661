package protocol

import (
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

func id(n byte) (id ID) {
	id[0] = n
	return id
}

// frameOf returns a frame of a load, with a body.
func frameOf(load ID, body string) string { return "v0" + string(load[:]) + body }

// TestSlot tests what the tests of stores can't test on every store, because they can't set its
// clock or its bytes.
func TestSlot(t *testing.T) {
	const ttl = 10 * time.Second
	t.Run("a value too short for an id is none", func(t *testing.T) {
		for _, f := range []string{"", "v", "v0"} {
			s := Slot{Frame: f, Until: ttl}
			if r := s.Ask(1,
				Question{
					Token: id(1), Number: 1, TTL: ttl, Seen: string(make([]byte, 16)),
				}); r.Kind != Granted {
				t.Errorf("beside %q the answer is %+v, want the lease", f, r)
			}
		}
	})
	t.Run("a copy of a claim gives it no more time", func(t *testing.T) {
		var s Slot
		first, _ := s.Claim(0, id(1), 1, ttl)
		s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl, Inbox: 1})
		again, _ := s.Claim(2, id(1), 3, ttl)
		if want := (Lease{Token: id(1), Number: 1, Until: ttl}); first != 1 || again != 1 ||
			s.Lease != want {
			t.Errorf("granted %d, then %d: %+v, want %+v", first, again, s.Lease, want)
		}
	})
	t.Run("a back-off ends with its record", func(t *testing.T) {
		var s Slot
		s.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
		s.Conclude(0, id(1), 1, Ending{Failures: 3}, false, ttl, 2*ttl)
		if r := s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Outcome ||
			r.Left != ttl-1 {
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
		if r := s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Granted ||
			r.Ending.Failures != 3 {
			t.Errorf("the first: %+v, want granted after 3 failures", r)
		}
		if r := s.Ask(1, Question{Token: id(2), Number: 3, TTL: ttl}); r.Kind != Granted ||
			r.Ending.Failures != 0 || r.Number != 2 {
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
		if s.Renew(ttl, id(1), 1, ttl) != Renewed ||
			s.Waiters != (Waiters{5, 2*ttl + WaitersStay}) {
			t.Errorf("after a renewal at %v those who wait are %+v", ttl, s.Waiters)
		}
		lead(2*ttl+WaitersStay/2, 4) // the leader has died
		if s.Waiters != (Waiters{5, 3*ttl + 3*WaitersStay/2}) {
			t.Errorf("of the next load wait %+v", s.Waiters)
		}
		if _, tells := s.Fill(3*ttl, id(4), 4, frameOf(id(4), ""), ttl); tells != TellsFilled ||
			s.Waiters != (Waiters{}) {
			t.Errorf("the next load tells %v, and leaves %+v", tells, s.Waiters)
		}
	})
	t.Run("nobody waits for ever", func(t *testing.T) {
		var s Slot
		s.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
		s.Ask(0, Question{Token: id(2), Number: 2, TTL: ttl, Inbox: 1})
		if s = s.At(ttl + WaitersStay); s != (Slot{}) {
			t.Errorf("%+v is left", s)
		}
	})
	t.Run("a lease is over at its end", func(t *testing.T) {
		s := Slot{Lease: Lease{Token: id(1), Number: 1, Until: ttl}}
		if r := s.Ask(ttl-1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Kind != Held ||
			r.Left != 1 {
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
		if want := strings.Replace(clean, "\x00\x00body", "m1body", 1); s.Frame != want ||
			s.Until != ttl {
			t.Errorf("%q until %v, want %q", s.Frame, s.Until, want)
		}
		s.Frame = "short"
		if s.MarkStale(3, 18, "m1"); s.Frame != "short" {
			t.Errorf("a frame without room is %q", s.Frame)
		}
	})
	t.Run("a value that the asker has seen is shown to its load only while it is there", func(
		t *testing.T,
	) {
		seen := ids[1]
		for _, c := range []struct {
			frame string
			want  bool
		}{{frameOf(id(1), "body"), true}, {"", false}} {
			s := Slot{Frame: c.frame, Until: ttl}
			q := Question{Token: id(2), Number: 2, TTL: ttl, Seen: seen}
			if r := s.Ask(1, q); r.Kind != Granted || r.Stands != c.want || r.Number != 2 {
				t.Errorf("beside %q: %+v, want granted with number 2, and the value there: %v",
					c.frame, r, c.want)
			}
			if r := s.Ask(2, q); r.Kind != Granted || r.Stands != c.want {
				t.Errorf("its copy beside %q: %+v, want the value there: %v", c.frame, r, c.want)
			}
		}
		s := Slot{
			Frame: frameOf(id(3), "body"), Until: ttl,
			Lease: Lease{Token: id(2), Number: 2, Until: ttl},
		}
		if r := s.Ask(1,
			Question{Token: id(2), Number: 4, TTL: ttl, Seen: seen}); r.Kind != Granted ||
			r.Stands {
			t.Errorf("beside another value: %+v, want granted, and not the value that was seen", r)
		}
		if r := s.Ask(1,
			Question{Token: id(4), Number: 4, TTL: ttl, Seen: seen}); r.Kind != Value ||
			r.Frame != s.Frame {
			t.Errorf("beside a value that wasn't seen: %+v, want the value", r)
		}
		empty := Slot{}
		if r := empty.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl}); r.Stands {
			t.Error("a value is there that nobody has stored")
		}
	})
	t.Run("a process that waits knows for which load", func(t *testing.T) {
		var s Slot
		s.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
		r := s.Ask(1, Question{Token: id(2), Number: 2, TTL: ttl})
		if r.Kind != Held || r.Load != id(1) || r.Left != ttl-1 {
			t.Errorf("%+v, want the lease of the first load", r)
		}
		if s.Waiters != (Waiters{}) {
			t.Errorf("%+v wait, but the asker won't", s.Waiters)
		}
	})
	t.Run("during the back-off everybody gets the failure, and then only who has waited for it",
		func(t *testing.T) {
			const backoff = time.Second
			failed := Slot{}
			failed.Ask(0, Question{Token: id(1), Number: 1, TTL: ttl})
			failed.Conclude(0, id(1), 1, Ending{Text: "broken"}, false, ttl, backoff)
			for _, c := range []struct {
				now     time.Duration
				awaited ID
				kind    Kind
				left    time.Duration
			}{
				{backoff - 1, ID{}, Outcome, 1},
				{backoff, ID{}, Granted, 0},
				{backoff, id(1), Outcome, 0},
				{ttl - 1, id(1), Outcome, 0},
				{ttl, id(1), Granted, 0},
			} {
				s := failed
				r := s.Ask(c.now, Question{Token: id(2), Number: 2, TTL: ttl, Awaited: c.awaited})
				if r.Kind != c.kind || r.Left != c.left ||
					r.Kind == Outcome && (r.Load != id(1) || r.Ending.Text != "broken") {
					t.Errorf("at %v, who has waited for %v gets %+v", c.now, c.awaited[0], r)
				}
				if r.Kind == Granted && s.Record != (Record{}) {
					t.Errorf("at %v, the record stays beside the lease", c.now)
				}
			}
		})
	t.Run("a fill counts once, and only of the grant in place", func(t *testing.T) {
		mine, others := frameOf(id(1), "mine"), frameOf(id(2), "others")
		held := Slot{
			Lease:   Lease{Token: id(1), Number: 1, Until: ttl},
			Waiters: Waiters{Inboxes: 1, Until: ttl + WaitersStay},
		}
		for name, c := range map[string]struct {
			slot  Slot
			now   time.Duration
			kind  Kind
			tells Tells
			frame string
		}{
			"in time":           {held, ttl - 1, Stored, TellsFilled, mine},
			"with none to tell": {Slot{Lease: held.Lease}, 1, Stored, TellsNothing, mine},
			"too late":          {held, ttl, Gone, TellsNothing, ""},
			"a copy":            {Slot{Frame: mine, Until: ttl}, 1, Stored, TellsNothing, mine},
			"after another": {
				Slot{Frame: others, Until: ttl}, 1, Gone, TellsNothing, others,
			},
			"under another's lease": {
				Slot{Lease: Lease{Token: id(2), Number: 1, Until: ttl}}, 1, Taken, TellsNothing, "",
			},
			"of an earlier grant": {
				Slot{Lease: Lease{Token: id(1), Number: 2, Until: ttl}}, 1, Taken, TellsNothing, "",
			},
		} {
			s := c.slot
			kind, tells := s.Fill(c.now, id(1), 1, mine, ttl)
			if kind != c.kind || tells != c.tells || s.Frame != c.frame {
				t.Errorf("%s: kind %d, %v, and the value is %q", name, kind, tells, s.Frame)
			}
			if kind == Stored && tells == TellsFilled &&
				(s.Until != c.now+ttl || s.Lease != Lease{} || s.Waiters != Waiters{}) {
				t.Errorf("%s: %+v is left", name, s)
			}
		}
	})
	t.Run("a failure ends its own lease only, and leaves the value unless it must go", func(
		t *testing.T,
	) {
		value := frameOf(id(3), "stale")
		held := Slot{
			Frame: value, Until: 5 * ttl,
			Lease:   Lease{Token: id(1), Number: 1, Until: ttl},
			Waiters: Waiters{Inboxes: 1, Until: ttl + WaitersStay},
		}
		s := held
		if tells := s.Conclude(1, id(1), 1, Ending{}, false, ttl, 0); tells != TellsEnding ||
			s.Frame != value || s.Lease != (Lease{}) {
			t.Errorf("%v, and %+v is left", tells, s)
		}
		s = held
		if s.Conclude(1, id(1), 1, Ending{}, true, 0, 0); s != (Slot{}) {
			t.Errorf("%+v is left, want nothing: not even a record, because its time is zero", s)
		}
		for _, late := range []time.Duration{1, ttl} {
			s, number := held, int64(2)
			if late == ttl {
				number = 1
			}
			want := s.At(late)
			if tells := s.Conclude(late, id(1), number, Ending{}, true, ttl,
				0); tells != TellsNothing || s != want {
				t.Errorf("at %v, of grant %d: %v, and %+v is left", late, number, tells, s)
			}
		}
	})
	t.Run("a renewal is of its own grant", func(t *testing.T) {
		s := Slot{Lease: Lease{Token: id(1), Number: 1, Until: ttl}}
		for _, c := range []struct {
			token  ID
			number int64
			kind   Kind
		}{{id(2), 1, Taken}, {id(1), 2, Taken}, {id(1), 1, Renewed}} {
			if k := s.Renew(1, c.token, c.number, ttl); k != c.kind {
				t.Errorf("of grant %d: kind %d, want %d", c.number, k, c.kind)
			}
		}
		if want := (Lease{Token: id(1), Number: 1, Until: ttl + 1}); s.Lease != want {
			t.Errorf("the lease is %+v, want %+v", s.Lease, want)
		}
	})
	t.Run("a release ends its own lease only, and wakes who waits", func(t *testing.T) {
		held := Slot{
			Lease:   Lease{Token: id(1), Number: 1, Until: ttl},
			Waiters: Waiters{Inboxes: 1, Until: ttl + WaitersStay},
		}
		s := held
		if tells := s.Release(1, id(2)); tells != TellsNothing || s != held {
			t.Errorf("another's: %v, and %+v is left", tells, s)
		}
		if tells := s.Release(1, id(1)); tells != TellsReleased || s != (Slot{}) {
			t.Errorf("its own: %v, and %+v is left", tells, s)
		}
		s = held
		if tells := s.Release(ttl, ID{}); tells != TellsNothing {
			t.Errorf("after the end of the lease: %v", tells)
		}
		if tells := s.Release(ttl, id(1)); tells != TellsNothing || s.Waiters != held.Waiters {
			t.Errorf("after the end of the lease: %v, and %+v wait", tells, s.Waiters)
		}
	})
	t.Run("a change leaves nothing from before it", func(t *testing.T) {
		full := Slot{
			Frame: frameOf(id(3), "\x00\x00old"), Until: ttl,
			Lease:   Lease{Token: id(1), Number: 1, Until: ttl},
			Waiters: Waiters{Inboxes: 1, Until: ttl + WaitersStay},
		}
		s := full
		if tells := s.Invalidate(); tells != TellsChanged || s != (Slot{}) {
			t.Errorf("Invalidate: %v, and %+v is left", tells, s)
		}
		s = full
		if n, tells := s.Claim(1, id(2), 2, ttl); n != 2 || tells != TellsChanged ||
			s != (Slot{Lease: Lease{Token: id(2), Number: 2, Until: ttl + 1}}) {
			t.Errorf("Claim: %v, and %+v is left", tells, s)
		}
		s = full
		if tells := s.MarkStale(1, 18, "m1"); tells != TellsChanged ||
			s != (Slot{Frame: frameOf(id(3), "m1old"), Until: ttl}) {
			t.Errorf("MarkStale: %v, and %+v is left", tells, s)
		}
		s = Slot{Record: Record{Load: id(1), Until: ttl}}
		if s.MarkStale(1, 18, "m1"); s != (Slot{}) {
			t.Errorf("MarkStale: %+v is left", s)
		}
		s = Slot{Record: Record{Load: id(1), Until: ttl}}
		if s.Claim(1, id(2), 2, ttl); s.Record != (Record{}) {
			t.Errorf("Claim: %+v is left", s)
		}
	})
	t.Run("a mark that just fits is written", func(t *testing.T) {
		s := Slot{Frame: frameOf(id(1), "\x00\x00"), Until: ttl}
		if s.MarkStale(1, 18, "m1"); s.Frame != frameOf(id(1), "m1") {
			t.Errorf("the value is %q", s.Frame)
		}
	})
	t.Run("nothing that has ended counts", func(t *testing.T) {
		full := Slot{
			Frame: frameOf(id(3), "\x00\x00old"), Until: ttl,
			Lease: Lease{Token: id(1), Number: 1, Until: 2 * ttl},
		}
		if s := full.At(ttl - 1); s != full {
			t.Errorf("before its end: %+v", s)
		}
		want := Slot{Lease: full.Lease}
		if s := full.At(ttl); s != want {
			t.Errorf("at its end: %+v", s)
		}
		marked := full
		if marked.MarkStale(ttl, 18, "m1"); marked != (Slot{}) {
			t.Errorf("a value that has ended is marked: %+v", marked)
		}
		again := Slot{Lease: Lease{Token: id(1), Number: 1, Until: ttl}}
		if n, _ := again.Claim(ttl, id(1), 5, ttl); n != 5 || again.Lease.Until != 2*ttl {
			t.Errorf("a claim whose lease has ended: number %d until %v", n, again.Lease.Until)
		}
	})
	t.Run("a claim keeps the tags of the value", func(t *testing.T) {
		tags, err := frame.MakeTags([]string{"tag"})
		if err != nil {
			t.Fatal(err)
		}
		value := frame.New(frame.Header{ID: id(1), Extension: frame.Extension{Tags: tags}},
			[]byte("body"))
		s := Slot{Frame: string(value), Until: ttl}
		s.Claim(1, id(2), 2, ttl)
		if want := string(frame.Remnant(value)); want == "" || s.Frame != want || s.Until != ttl {
			t.Errorf("%q is left until %v, want %q", s.Frame, s.Until, want)
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
