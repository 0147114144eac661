package middleware

import (
	"fmt"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	var b budget
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	taken := func(from, to int, now time.Time) (n int) {
		for i := from; i < to; i++ {
			if b.takes(fmt.Sprint(i), now) {
				n++
			}
		}
		return n
	}
	if n := taken(0, 5000, now); n != changesAtOnce {
		t.Errorf("%d at once", n)
	}
	if n := taken(0, changesAtOnce, now); n != changesAtOnce {
		t.Errorf("%d of those that were taken are taken again", n)
	}
	if n := taken(5000, 6000, now.Add(10*time.Second)); n != 10*changesASecond {
		t.Errorf("%d after 10 seconds", n)
	}
	if n := taken(6000, 7000, now); n != 0 { // the clock was set back
		t.Errorf("%d before that", n)
	}
	if n := taken(10_000, 20_000, now.Add(24*time.Hour)); n != changesAtOnce {
		t.Errorf("%d after a day", n)
	}
	if len(b.lately) != changesRemember || len(b.order) != changesRemember {
		t.Errorf("%d and %d are remembered", len(b.lately), len(b.order))
	}
}
