package program

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const testLease = time.Second

// court is a referee with the questions that it has asked.
type court struct {
	*referee
	t     *testing.T
	asked []asked
}

type asked struct {
	process        int
	hold, question int64
}

func convene(t *testing.T) *court {
	c := &court{t: t}
	c.referee = newReferee(testLease, func(process int, hold, question int64) {
		c.asked = append(c.asked, asked{process, hold, question})
	})
	return c
}

// say answers all questions. The given processes believe that they have the lock, and the others
// don't.
func (c *court) say(believers ...int) {
	all := c.asked
	c.asked = nil
	for _, q := range all {
		believes := false
		for _, b := range believers {
			believes = believes || b == q.process
		}
		c.answers(q.question, believes)
	}
}

// The holders of these holds are in processes 1, 2 and 3.
var first, second, third = holdOf{1, 1}, holdOf{2, 1}, holdOf{3, 1}

func TestReferee(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(c *court)
		want lockTally
	}{
		{"one after the other", func(c *court) {
			c.begins(first, "a", 1)
			c.acts(first)
			c.ends(first)
			c.begins(second, "a", 2)
			c.acts(second)
		}, lockTally{Acquisitions: 2, Handovers: 1}},
		{"different names", func(c *court) {
			c.begins(first, "a", 1)
			c.begins(second, "b", 1)
		}, lockTally{Acquisitions: 2}},
		{"both believe", func(c *court) {
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.say(1, 2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Overlaps: 1}},
		{"three believe, which is two and two more", func(c *court) {
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.begins(third, "a", 0)
			c.say(1, 2, 3)
		}, lockTally{Acquisitions: 3, Handovers: 2, Overlaps: 3}},
		{"the first one knows", func(c *court) {
			c.begins(first, "a", 1)
			c.begins(second, "a", 2)
			c.say(2)
		}, lockTally{Acquisitions: 2, Handovers: 1}},
		{"the second one knows", func(c *court) {
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.say(1)
		}, lockTally{Acquisitions: 2, Handovers: 1}},
		{"one has not answered yet", func(c *court) {
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.answers(c.asked[0].question, true)
		}, lockTally{Acquisitions: 2, Handovers: 1}},
		{"an old token, believed after the next one has ended", func(c *court) {
			c.begins(first, "a", 2)
			c.ends(first)
			c.begins(second, "a", 1)
			c.say(2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Overlaps: 1, LateRunning: 1, Refused: 1}},
		{"an old token, not believed", func(c *court) {
			c.begins(first, "a", 2)
			c.stands(2)
			c.goesOn(2)
			c.begins(second, "a", 1)
			c.say()
		}, lockTally{Acquisitions: 2, Handovers: 1, Stops: 1, LateStopped: 1, Refused: 1}},
		{"the same token twice", func(c *court) {
			c.begins(first, "a", 2)
			c.ends(first)
			c.begins(second, "a", 2)
			c.say(2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Overlaps: 1, LateRunning: 1, Refused: 1}},
		{"acts late, having been stopped", func(c *court) {
			c.begins(first, "a", 1)
			c.stands(1)
			c.begins(second, "a", 2)
			c.goesOn(1)
			c.acts(first)
			c.acts(second)
			c.say(2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Stops: 1, LateStopped: 1, Refused: 1}},
		{"acts late, being slow, after another had been stopped, and itself long ago",
			func(c *court) {
				c.stands(1)
				c.goesOn(1)
				time.Sleep(testLease + 1)
				c.begins(first, "a", 0)
				c.stands(2)
				c.goesOn(2)
				c.begins(second, "a", 0)
				c.acts(first)
				c.say(2)
			}, lockTally{Acquisitions: 2, Handovers: 1, Stops: 2, LateRunning: 1}},
		{"a master forgets, and both believe", func(c *court) {
			c.begins(first, "a", 0)
			c.forgets()
			time.Sleep(testLease - 1)
			c.begins(second, "a", 0)
			c.say(1, 2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Emptied: 1, Excused: 1}},
		{"a master forgot longer ago than anybody may believe", func(c *court) {
			c.begins(first, "a", 0)
			c.forgets()
			time.Sleep(testLease)
			c.begins(second, "a", 0)
			c.say(1, 2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Emptied: 1, Overlaps: 1}},
		{"a master forgot before anybody asked", func(c *court) {
			c.forgets()
			time.Sleep(testLease)
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.say(1, 2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Emptied: 1, Overlaps: 1}},
		{"the machine's clock is set forward, and both believe", func(c *court) {
			c.clockSet = func(time.Time) time.Duration { return testLease/100 + time.Millisecond }
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.say(1, 2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Excused: 1}},
		{"the machine's clock is set forward by no more than lockers allow for", func(c *court) {
			c.clockSet = func(time.Time) time.Duration { return testLease / 100 }
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.say(1, 2)
		}, lockTally{Acquisitions: 2, Handovers: 1, Overlaps: 1}},
		{"one died", func(c *court) {
			c.begins(first, "a", 0)
			c.begins(second, "a", 0)
			c.dies(1, "panic")
			c.say(1, 2)
			c.begins(third, "a", 0)
			c.say(2)
		}, lockTally{Acquisitions: 3, Handovers: 2, Deaths: 1, Death: "panic"}},
		{"one who has ended is not asked", func(c *court) {
			c.begins(first, "a", 0)
			c.ends(first)
			c.begins(second, "a", 0)
			if len(c.asked) > 0 {
				c.t.Errorf("asked: %v", c.asked)
			}
		}, lockTally{Acquisitions: 2, Handovers: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := convene(t)
				tc.do(c)
				got := c.tally
				if (got.First != "") != (got.Overlaps > 0) ||
					got.Overlaps > 0 && !strings.Contains(got.First, "believed") {
					t.Errorf("the first of %d overlaps: %q", got.Overlaps, got.First)
				}
				got.First = ""
				if got != tc.want {
					t.Errorf("got  %+v\nwant %+v", got, tc.want)
				}
			})
		})
	}
}
