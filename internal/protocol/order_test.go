package protocol

import (
	"slices"
	"strings"
	"testing"
)

// awaited has, for each state, the events for which a miss waits in that state. End may come in
// every state.
var awaited = map[State][]Kind{
	Begun:     {Begin},
	Queued:    {Turned, Refused},
	Asking:    {Granted, Held, Value, Outcome, Unanswered},
	Leading:   {Renewed, Unrenewed, Gone, Taken, Returned, Unstorable, Failed},
	Settling:  {Stored, Unsure, Told},
	Failing:   {Stored, Unsure, Told},
	Following: {Changed, Filled, Over, Woken, Overdue},
	Leaving:   {Wanted, Unwanted},
	Spared:    {Turned, Refused},
	Alone:     {Returned, Unstorable, Failed, Refused},
	Landed:    nil,
}

// TestLateEventsChangeNothing: an answer, a message or the end of a load can arrive late, when the
// miss already waits for something else. If such an event changed the miss, callers could get the
// result of a cancelled load, or two results.
func TestLateEventsChangeNothing(t *testing.T) {
	all, called := events()
	for s := Begun; s <= Landed; s++ {
		for _, kind := range misses {
			for i, e := range all {
				if e.Kind == End || slices.Contains(awaited[s], e.Kind) {
					continue
				}
				m := in(s, kind.set)
				was := m
				do, landing := m.Step(e)
				if was.Unseen {
					m.Unseen = was.Unseen // the first answer ends Unseen, whatever the answer is
				}
				if do != 0 || landing != 0 || m != was {
					t.Errorf("%v (%s), %s: %v %v, now %v", s, kind.name, called[i], do, landing,
						m.State)
				}
			}
		}
	}
}

// before has pairs of actions: the first one must come before the second one. The value says what
// goes wrong in the other order.
var before = map[string]string{
	"Seal CancelLoad":      "a caller joins a load that is being cancelled",
	"Seal Land":            "a caller joins a flight that has landed",
	"Seal TakeTurn":        "a caller joins a load from before a change",
	"CancelLoad Release":   "another process gets the lease, and loads beside a load that still runs",
	"CancelLoad Land":      "a load goes on although its callers have a result",
	"CancelLoad TakeTurn":  "with MaxLoads 1, a miss waits for the slot of the load that it is about to cancel",
	"EndTurn Release":      "a slow store keeps a slot from other loads",
	"EndTurn ReleaseLater": "a slow store keeps a slot from other loads",
	"EndTurn Land":         "a caller that has its result finds the slot taken",
	"EndTurn Refresh":      "with MaxLoads 1, a refresh finds no slot",
	"EndTurn LetGo":        "with MaxLoads 1, a refresh that is wanted waits for its own slot",
	"EndTurn Follow":       "a miss waits for another load with a slot in hand",
	"EndTurn TakeTurn":     "with MaxLoads 1, a miss waits for its own slot",
	"Release Land":         "Close returns, and the process ends before it has released the lease",
	"Release TakeTurn":     "a miss waits for the lease that it is about to release",
	"Land ReleaseLater":    "callers wait for a store that doesn't answer",
	"Land ConcludeLater":   "callers wait for a store that doesn't answer",
	"Land Refresh":         "callers wait for the refresh of the value that they have",
	"ReleaseLater LetGo":   "a refresh that is wanted asks for a lease that may be its own",
	"ReleaseLater Load":    "other processes wait for the lease during a whole load",
	"Load Renew":           "a lease is renewed whose load doesn't run yet",
}

// TestOrderOfActions: the driver performs the actions of a step in the order of their constants.
// Wherever two actions come together, the order has a reason.
func TestOrderOfActions(t *testing.T) {
	all, _ := events()
	used := map[string]bool{}
	for s := Begun; s <= Landed; s++ {
		for _, kind := range misses {
			for _, e := range all {
				m := in(s, kind.set)
				do, _ := m.Step(e)
				for a := Seal; a <= do; a <<= 1 {
					for b := a << 1; do&a != 0 && b <= do; b <<= 1 {
						if do&b != 0 {
							used[a.String()+" "+b.String()] = true
						}
					}
				}
			}
		}
	}
	for pair := range used {
		first, second, _ := strings.Cut(pair, " ")
		if why := before[second+" "+first]; why != "" {
			t.Errorf("%s comes before %s: %s", first, second, why)
		} else if before[pair] == "" {
			t.Errorf("%s comes before %s: say why", first, second)
		}
	}
	for pair := range before {
		if first, second, _ := strings.Cut(pair, " "); !used[pair] && !used[second+" "+first] {
			t.Errorf("%s and %s never come together", first, second)
		}
	}
}
