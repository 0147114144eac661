package protocol

import (
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// TestCounts: if a load may have begun before an invalidation, its value is invalid.
func TestCounts(t *testing.T) {
	for ahead, want := range map[int64]bool{-1: false, 0: false, 1: true} {
		if got := Counts(1000+ahead, 1000); got != want {
			t.Errorf("a load that began %d µs after an invalidation counts: %v", ahead, got)
		}
	}
}

// TestTooFarAhead: no invalidation by tag would be later than a stamp from the far future, so such
// a value would stay until its TTL is over. A stamp may be a day and a second ahead: a store allows
// generations that are a day ahead, and a process's clock may be a little behind the store's.
func TestTooFarAhead(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	for ahead, want := range map[time.Duration]bool{
		0: false, 24 * time.Hour: false, 24*time.Hour + time.Second: false,
		24*time.Hour + time.Second + time.Microsecond: true,
	} {
		if got := TooFarAhead(now.Add(ahead).UnixMicro(), now); got != want {
			t.Errorf("a stamp %v ahead is too far ahead: %v", ahead, got)
		}
	}
}

// TestJudge judges a value with a TTL of a minute. After its TTL the value may be served for 10 s
// while it is refreshed, and for 20 s in place of an error.
func TestJudge(t *testing.T) {
	made := time.Unix(1_000_000, 0)
	never := time.Duration(-1)
	for name, c := range map[string]struct {
		after, marked time.Duration // since the value was made
		age, over     time.Duration
		good          Use
	}{
		"new":                 {0, never, 0, -time.Minute, Fresh},
		"just before its end": {time.Minute - 1, never, time.Minute - 1, -1, Fresh},
		"at its end":          {time.Minute, never, time.Minute, 0, Meanwhile},
		"just before the end of the first window": {
			70*time.Second - 1, never, 70*time.Second - 1, 10*time.Second - 1, Meanwhile,
		},
		"at the end of the first window": {
			70 * time.Second, never, 70 * time.Second, 10 * time.Second, OnError,
		},
		"just before the end of the second window": {
			80*time.Second - 1, never, 80*time.Second - 1, 20*time.Second - 1, OnError,
		},
		"at the end of the second window": {
			80 * time.Second, never, 80 * time.Second, 20 * time.Second, Shown,
		},

		"marked, a moment ago": {
			30 * time.Second, 30 * time.Second, 30 * time.Second, 0, Meanwhile,
		},
		"marked, by a clock that is ahead": {
			30 * time.Second, 31 * time.Second, 30 * time.Second, 0, Meanwhile,
		},
		"marked, for longer than the windows": {
			50 * time.Second, 25 * time.Second, 50 * time.Second, 25 * time.Second, Shown,
		},
		"marked after its end": {
			75 * time.Second, 70 * time.Second, 75 * time.Second, 15 * time.Second, OnError,
		},

		"from the future, as far as clocks differ": {-ClockSlack, never, 0, -time.Minute, Fresh},
		"from the future": {
			-ClockSlack - 1, never, -ClockSlack - 1, -time.Minute - ClockSlack - 1, Shown,
		},
	} {
		h := frame.Header{
			Created: made, Soft: time.Minute, Revalidate: 10 * time.Second,
			IfError: 20 * time.Second,
		}
		if c.marked != never {
			h.Marked = made.Add(c.marked)
		}
		if age, over, good := Judge(h, made.Add(c.after)); age != c.age || over != c.over ||
			good != c.good {
			t.Errorf("%s: age %v, %v over, %v; want age %v, %v over, %v", name, age, over, good,
				c.age, c.over, c.good)
		}
	}
}
