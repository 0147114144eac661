package simulate

import "math"

// gate lets so many in at a time; the others wait in line. It is the origin's capacity, and the
// fleet's budget.
type gate struct {
	cap   int // 0: no limit
	bulk  int // of these, taken by what is not simulated one by one
	in    int
	most  int // at once, with what is not simulated one by one
	queue int // that may wait; 0: any number
	line  []func()
	first int // of the line
}

// enter calls begin when there is room: at once, or later. It returns false if too many are
// waiting.
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

// leave makes room for the next one in line.
func (g *gate) leave() {
	g.in--
	g.admit()
}

// admit lets in who is in line as long as there is room.
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

// waiting is how many are in line.
func (g *gate) waiting() int { return len(g.line) - g.first }

// carry has so many places be taken by what is not simulated one by one, as far as there is room,
// and leaves at least one to the others.
func (g *gate) carry(places float64) {
	n := int(math.Ceil(places))
	if g.cap > 0 {
		n = max(0, min(n, g.cap-max(g.in, 1)))
	}
	g.bulk = n
	g.most = max(g.most, g.in+g.bulk)
	g.admit()
}
