package simulate

import "math"

// gate has a number of places; further loads wait in line. It models the origin's capacity and the
// fleet's budget.
type gate struct {
	cap  int // 0: no limit
	bulk int // places taken by loads that are not simulated one by one
	in   int
	// The largest number of taken places at once, including loads that are not simulated one by
	// one.
	most  int
	queue int // the number of loads that may wait; 0: any number
	line  []func()
	first int // index of the first load in line
}

// enter calls begin when there is room, at once or later. If too many loads are waiting, it returns
// false.
func (g *gate) enter(begin func()) bool {
	if g.cap > 0 && g.in+g.bulk >= g.cap {
		if g.queue > 0 && g.waiting() >= g.queue {
			return false
		}
		g.line = append(g.line, begin)
		return true
	}
	g.in++
	g.most = max(g.most, g.in+g.bulk)
	begin()
	return true
}

// leave makes room for the next load in line.
func (g *gate) leave() {
	g.in--
	g.admit()
}

// admit lets waiting loads begin as long as there is room.
func (g *gate) admit() {
	for g.first < len(g.line) && g.in+g.bulk < g.cap {
		begin := g.line[g.first]
		g.line[g.first] = nil
		g.first++
		g.in++
		g.most = max(g.most, g.in+g.bulk)
		begin()
	}
	if 2*g.first >= len(g.line) {
		g.line, g.first = append(g.line[:0], g.line[g.first:]...), 0
	}
}

// waiting returns the number of loads in line.
func (g *gate) waiting() int { return len(g.line) - g.first }

// carry sets the number of places for loads that are not simulated one by one, as far as there is
// room. It leaves at least one place to the other loads.
func (g *gate) carry(places float64) {
	n := int(math.Ceil(places))
	if g.cap > 0 {
		n = max(0, min(n, g.cap-max(g.in, 1)))
	}
	g.bulk = n
	g.most = max(g.most, g.in+g.bulk)
	g.admit()
}
