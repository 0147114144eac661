package sqllock

import (
	"testing"
	"time"
)

func TestSleep(t *testing.T) {
	const poll = 100 * time.Millisecond
	for range 100 {
		s := newSleep(firstSleep, poll, drowsy)
		most := firstSleep
		for range 10 {
			if d := s.next(answer{}, false); d < most/2 || d > most {
				t.Fatalf("%v, want half of %v to all of it", d, most)
			}
			most = min(2*most, poll)
		}
		if d := s.next(answer{left: 10 * time.Millisecond}, false); d > 12*time.Millisecond {
			t.Fatalf("%v, while the lease is over in 10ms", d)
		}
		if d := s.next(answer{left: 10 * time.Millisecond}, true); d > 12*time.Millisecond {
			t.Fatalf("%v, while the lease is over in 10ms", d)
		}
		if d := s.next(answer{left: time.Hour}, true); d < drowsy/2 || d > drowsy {
			t.Fatalf("%v, when it will be notified", d)
		}
		if d := s.next(answer{}, true); d > poll {
			t.Fatalf("%v, when nothing is known", d)
		}
		s.restart()
		if d := s.next(answer{left: time.Hour}, false); d > firstSleep {
			t.Fatalf("%v, after it was woken", d)
		}
		if d := newSleep(firstSleep, minPoll, drowsy).next(answer{left: 1}, false); d < leastSleep {
			t.Fatalf("%v is no sleep", d)
		}
	}
}
