package simulate

import "math"

// line is a queue of waiting loads, modelled as a fluid.
type line struct{ waiting, debt float64 }

// pass adds n loads in a slot in which room loads can begin. It returns how long they wait on
// average, how many begin, and how many are dropped because more than most would wait.
func (l *line) pass(n, room, slot, most float64) (wait, begun, dropped float64) {
	before := l.waiting
	begun = min(before+n, room)
	l.waiting = before + n - begun
	if l.waiting > most {
		dropped = l.waiting - most
		l.waiting = most
	}
	if l.waiting > 0 || before > 0 {
		wait = (before + l.waiting) / 2 * slot / room
	}
	whole := math.Floor(begun + l.debt) // loads are counted as whole numbers
	l.debt += begun - whole
	return wait, whole, dropped
}
