package redlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Any two majorities have a master in common, even if one process knows one master more than
// another process.
func TestQuorumsMeet(t *testing.T) {
	for n := 3; n < 20; n++ {
		if 2*quorum(n) <= n {
			t.Errorf("two majorities of %d masters need not meet: %d", n, quorum(n))
		}
		if quorum(n)+quorum(n+1) <= n+1 {
			t.Errorf("a majority of %d masters and one of %d need not meet: %d, %d", n, n+1,
				quorum(n), quorum(n+1))
		}
	}
	if quorum(3)+quorum(5) > 5 {
		t.Error("masters may be added two at a time; the documentation says otherwise")
	}
}

// In the string votes, m is mine, f is free, x and y are other claims, and - is no reply. Missing
// replies haven't come yet.
func votes(masters int, votes string) *tally {
	t := &tally{masters: masters}
	for i, v := range votes {
		a := answer{master: i}
		switch v {
		case 'm':
			a.said = mine
		case 'f':
			a.said = free
		case 'x', 'y', 'z':
			a.said, a.holder, a.left = other, string(v), time.Duration(i+1)*time.Second
		case '-':
			a.err = errors.New("no answer")
		}
		t.add(a)
	}
	return t
}

// The expected value is the time in seconds until a majority can be free. The lock of master i ends
// after i+1 seconds.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		votes string
		left  time.Duration
	}{
		{"xxxxx", 3}, {"mxxxx", 3}, {"mmxxx", 3}, {"mmxff", 3}, {"mm---", -1}, {"x----", -1},
		// Too late: the claim itself gives back a majority.
		{"mmm", 0}, {"mmmmm", 0}, {"mmm--", 0}, {"mmmxx", 0},
	} {
		want := c.left * time.Second
		if c.left < 0 {
			want = -1
		}
		if got := votes(5, c.votes).left(); got != want {
			t.Errorf("%s: %v; want %v", c.votes, got, want)
		}
	}
}

// However long the request took, the next request comes soon.
func TestBackOffIsBounded(t *testing.T) {
	for n := range 20 {
		for _, took := range []time.Duration{0, time.Millisecond, time.Hour, 1 << 62} {
			if d := backOff(n, took); d < 0 || d >= mostSpan {
				t.Errorf("after %d times and %v: %v", n, took, d)
			}
		}
	}
}

func TestTally(t *testing.T) {
	const yes, no = true, false
	for _, c := range []struct {
		masters                                         int
		votes                                           string
		won, refused, unusable, settled, decided, split bool
	}{
		{5, "mmm", yes, no, no, yes, yes, no},
		{5, "mm", no, no, no, no, no, no},
		{5, "mmxx", no, no, no, no, no, no},
		{5, "mmxxx", no, yes, no, yes, yes, no},
		{5, "xxx", no, yes, no, yes, yes, no},
		{5, "mmxxy", no, yes, no, yes, yes, yes}, // all replies have come
		{5, "mmxx-", no, no, no, yes, no, no},    // x may have it
		{5, "mmxy-", no, no, no, yes, no, yes},
		{5, "mm---", no, no, yes, yes, no, no},
		{5, "x----", no, no, yes, yes, no, no},
		{5, "---", no, no, yes, yes, no, no},
		{5, "--", no, no, no, no, no, no},
		{5, "mff", no, no, no, no, no, no},
		{5, "mmfff", no, yes, no, yes, yes, yes},
		{3, "mm", yes, no, no, yes, yes, no},
		{3, "m-", no, no, no, no, no, no},
		{3, "m--", no, no, yes, yes, no, no},
		{3, "mxy", no, yes, no, yes, yes, yes},
		{4, "mm", no, no, no, no, no, no},
		{4, "mmm", yes, no, no, yes, yes, no},
		{4, "mmxx", no, yes, no, yes, yes, yes}, // two of four say no, so no majority is possible
		{4, "mm-x", no, no, no, yes, no, yes},
	} {
		v := votes(c.masters, c.votes)
		for _, is := range []struct {
			what      string
			got, want bool
		}{
			{"won", v.won(), c.won}, {"refused", v.refused(), c.refused},
			{"unusable", v.unusable(), c.unusable},
			{"settled", v.settled(), c.settled}, {"decided", v.decided(), c.decided},
			{"split", len(v.answers) == c.masters && v.split(), c.split},
		} {
			if is.got != is.want {
				t.Errorf("%s of %d: %s is %v; want %v", c.votes, c.masters, is.what, is.got,
					is.want)
			}
		}
	}
}

// If a majority has replied, the call doesn't wait for masters that were away. Otherwise it waits
// for them.
func TestTallyAway(t *testing.T) {
	for _, c := range []struct {
		votes   string
		settled bool
	}{
		{"mmx", true}, {"mm", false}, {"mm-", false}, {"mxy", true}, {"m--", false}, {"mmf", true},
	} {
		v := votes(5, c.votes)
		v.away = []bool{false, false, false, true, true}
		if v.settled() != c.settled {
			t.Errorf("%s, and two that were away: settled %v; want %v", c.votes, v.settled(),
				c.settled)
		}
		v.away[4] = false
		if v.settled() {
			t.Errorf("%s, and one that was there: settled", c.votes)
		}
	}
}

// If a call has some of the votes, and no other claim is known to have a majority, the call asks
// again, because several calls may have met and got the same replies.
func TestTallyMet(t *testing.T) {
	for votes5, want := range map[string]bool{
		"mmx--": true, "mxx--": true, "mmxx-": true, "mxy--": true, "mmxxy": true, "mfff-": true,
		"mmm": false, "mmxxx": false, "mxxx": false, "xxx--": false, "xxy--": false, "xx---": false,
	} {
		if got := votes(5, votes5).met(); got != want {
			t.Errorf("met of %s is %v; want %v", votes5, got, want)
		}
	}
}

// A claim has a separate token for each master.
func TestTallyMostOfOneClaim(t *testing.T) {
	v := votes(5, "xxymm")
	for i, claim := range []string{"A", "A", "B"} {
		v.answers[i].holder = strings.Repeat(claim, claimSize) + fmt.Sprintf("%02x", i)
	}
	if got := v.most(); got != 2 {
		t.Errorf("one claim has %d masters; want 2", got)
	}
}

func TestTallyLeft(t *testing.T) {
	for votes5, want := range map[string]time.Duration{
		"xxxxx": 3 * time.Second, "mmxxx": 3 * time.Second, "mxx--": 3 * time.Second, "xx---": -1,
		"xxx":   3 * time.Second,
		"mmxyz": 3 * time.Second,
	} {
		if got := votes(5, votes5).left(); got != want {
			t.Errorf("left of %s is %v; want %v", votes5, got, want)
		}
	}
	endless := votes(5, "xxx")
	endless.answers[1].left = -1
	if got := endless.left(); got != -1 {
		t.Errorf("left with a lock without an end is %v", got)
	}
}

func TestTallyClose(t *testing.T) {
	v := votes(5, "mm")
	v.close(func(int) error { return errors.New("late") })
	if !v.unusable() || v.pending() != 0 || v.trouble() == nil {
		t.Errorf("after its end: unusable %v, pending %d", v.unusable(), v.pending())
	}
}

func TestValidity(t *testing.T) {
	for _, c := range []struct {
		lease time.Duration
		drift float64
		want  time.Duration
	}{
		{10 * time.Second, 0, 9898 * time.Millisecond},
		{10 * time.Second, 0.5, 4998 * time.Millisecond},
		{10 * time.Millisecond, 0, 7900 * time.Microsecond},
		{10 * time.Millisecond, 0.5, 3 * time.Millisecond},
	} {
		o, errs := Options{Lease: c.lease, Drift: c.drift}.withDefaults()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if got := o.validity(); got != c.want {
			t.Errorf("a lease of %v with a drift of %v is valid for %v; want %v", c.lease, c.drift,
				got, c.want)
		}
		if o.NodeTimeout >= o.validity() {
			t.Errorf("a lease of %v with a drift of %v: NodeTimeout %v eats it", c.lease, c.drift,
				o.NodeTimeout)
		}
	}
}

// If a call has won too late and has given the lock back, it asks again soon. Perhaps no other
// holder has the lock, and then no message would wake the call.
func TestRestAfterWinningTooLate(t *testing.T) {
	for _, calls := range []bool{false, true} {
		w := waiting{poll: leastPoll}
		if r := w.rest(attempt{err: errors.New("too late"), t: votes(5, "mmm--")}, calls,
			0); r.most >= mostSpan {
			t.Errorf("with messages: %v: it rests for %v", calls, r.most)
		}
	}
}
