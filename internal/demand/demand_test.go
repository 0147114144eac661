package demand_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/demand"
)

// clock is a store's, which takes a second to say what it says.
type clock struct {
	back  time.Duration // how far it is behind its estimate
	err   error
	asked int
}

func (c *clock) Now() time.Time { return time.Now() }

func (c *clock) Clock(context.Context, string) (int64, error) {
	c.asked++
	now := time.Now()
	time.Sleep(time.Second) // in the bubble
	return now.Add(-c.back).UnixMicro(), c.err
}

// What is demanded by a moment, and how often the store is asked.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		clock  clock
		moment time.Duration // from now
		want   time.Duration
		none   bool
		asked  int
	}{
		"past":           {moment: -time.Minute, want: -time.Minute},
		"now":            {},
		"a moment ahead": {moment: 200 * time.Millisecond, asked: 1},
		"ahead":          {moment: time.Hour, none: true, asked: 1},
		"far ahead":      {moment: 48 * time.Hour, none: true},
		"a clock that was set forth": {
			clock: clock{back: -time.Hour}, moment: time.Hour, want: time.Hour, asked: 1,
		},
		"a store that can't be asked": {
			clock: clock{err: errors.New("away")}, moment: time.Hour, want: time.Hour, asked: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j demand.Judge
				began := time.Now()
				want := began.Add(test.want).UnixMicro()
				if test.none {
					want = 0
				}
				if got := j.Check(t.Context(), &test.clock, "c",
					began.Add(test.moment).UnixMicro()); got != want {
					t.Errorf("got %d, want %d", got, want)
				}
				if test.clock.asked != test.asked {
					t.Errorf("the store was asked %d times, want %d", test.clock.asked, test.asked)
				}
			})
		})
	}
}

// Thousands who come while the store is being asked share the next question; none gets what was
// said before it came.
func TestQuestionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j demand.Judge
		var c clock
		check := func() (got chan int64) {
			got = make(chan int64, 1)
			moment := time.Now().Add(200 * time.Millisecond).UnixMicro()
			go func() { got <- j.Check(t.Context(), &c, "c", moment) }()
			return got
		}
		first := check()
		time.Sleep(500 * time.Millisecond)
		came := time.Now().UnixMicro()
		var others []chan int64
		for range 5000 {
			others = append(others, check())
		}
		<-first
		for _, other := range others {
			if got := <-other; got < came {
				t.Fatalf("what was demanded is %v from before the call",
					time.Duration(came-got)*time.Microsecond)
			}
		}
		if c.asked != 2 {
			t.Errorf("the store was asked %d times, want 2", c.asked)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		moment := time.Now().Add(time.Minute).UnixMicro()
		if got := j.Check(ctx, &c, "c", moment); got != moment {
			t.Errorf("a caller that leaves: %d, want %d", got, moment)
		}
		time.Sleep(time.Minute)
	})
}
