package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Random times are within their limits.
func TestRest(t *testing.T) {
	const turn = 5 * time.Millisecond
	between := func(what string, got, least, most time.Duration) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %v; want %v to %v", what, got, least, most)
		}
	}
	for range 200 {
		a := attempt{t: votes(5, "xxxxx"), took: time.Millisecond}
		w := waiting{poll: leastPoll, pause: mostPause}
		r := w.rest(a, true, turn)
		between("held, woken by messages", r.most, mostPause+turn, mostPause+turn)
		between("held, once woken", r.woken, turn, turn)

		short := votes(5, "xxxxx")
		for i := range short.answers {
			short.answers[i].left = time.Duration(i+1) * 10 * time.Millisecond
		}
		r = w.rest(attempt{t: short}, true, turn)
		between("held by one who ends soon", r.most, 30*time.Millisecond+turn,
			30*time.Millisecond+turn)

		poll := leastPoll
		for range 8 {
			r = w.rest(a, false, turn)
			between("held, without messages", r.most, poll/2, poll)
			poll = min(2*poll, mostPoll)
		}
		if poll != mostPoll {
			t.Fatalf("polls every %v in the end", poll)
		}

		span := leastSpan
		for range 4 {
			r = w.rest(attempt{t: votes(5, "mmxxy"), took: time.Microsecond}, true, 0)
			between("split votes", r.most, 0, span)
			if r.most != r.woken {
				t.Errorf("split votes: %v, and %v when woken, as they all are at once", r.most,
					r.woken)
			}
			span *= 2
		}
		for range 20 {
			r = w.rest(attempt{t: votes(5, "xxyyz"), took: time.Microsecond}, true, 0)
		}
		between("split among others for long", r.most, 0, mostSpan)
		if w.met < 20 {
			t.Fatalf("split among others: nobody waits for longer after %d times", w.met)
		}
		r = w.rest(a, true, turn)
		between("held again", r.woken, turn, turn)
		for range 20 {
			r = w.rest(attempt{t: votes(5, "mmxxx"), took: time.Microsecond}, true, turn)
		}
		between("met others for long", r.woken, turn, turn+mostSpan)

		w = waiting{poll: leastPoll, pause: mostPause}
		silent := votes(5, "mx---")
		r = w.rest(attempt{t: silent, err: silent.trouble()}, false, 0)
		between("no majority answers", r.most, leastPoll/2, leastPoll)
	}
}

func TestTurns(t *testing.T) {
	var ls lines
	ls.init(5)
	if got := ls.turns(3); got != 3*leastTurn {
		t.Errorf("at first three take %v; want %v", got, 3*leastTurn)
	}
	for range 100 {
		ls.took(5 * time.Millisecond)
	}
	if got := ls.turns(2); got < 9*time.Millisecond || got > 10*time.Millisecond {
		t.Errorf("when a question takes 5 ms, two take %v", got)
	}
	ls.took(time.Second) // the machine was stopped
	if got := ls.turns(1); got > mostTurn {
		t.Errorf("one takes %v", got)
	}
	ls.took(2 * time.Millisecond)
	if got := ls.turns(1); got != 2*time.Millisecond {
		t.Errorf("when a question takes 2 ms, one takes %v", got)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("1:ABCDEFGHIJKLMNOPQRSTUVWXYZname")
	f.Add("-1:ABCDEFGHIJKLMNOPQRSTUVWXYZ:")
	f.Add(":")
	f.Fuzz(func(t *testing.T, payload string) {
		waiting, token, name, ok := parseMessage(payload)
		if ok && (waiting < 0 || waiting > mostWaiters || len(token) != tokenSize || name == "") {
			t.Errorf("%q is read as %d, %q, %q", payload, waiting, token, name)
		}
	})
}

// After trouble has ended, its time isn't added to later trouble.
func TestTroubleEndsWithAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ls lines
		ls.init(5)
		p, _, _ := ls.join("k")
		failed, answered := attempt{err: errors.New("no majority")}, attempt{t: votes(5, "xxxxx")}
		since := func(a attempt) time.Duration {
			_, trouble := p.asked(a)
			return time.Since(trouble)
		}
		since(failed)
		time.Sleep(time.Second)
		if d := since(failed); d != time.Second {
			t.Errorf("after a second of trouble: %v", d)
		}
		if _, trouble := p.asked(answered); !trouble.IsZero() {
			t.Errorf("an answer, and trouble since %v", trouble)
		}
		time.Sleep(time.Second)
		if d := since(failed); d != 0 {
			t.Errorf("new trouble counts from %v ago", d)
		}
	})
}
