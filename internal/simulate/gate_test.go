package simulate

import "testing"

func TestGate(t *testing.T) {
	g := gate{cap: 3, queue: 2}
	var began []int
	enter := func(i int) bool { return g.enter(func() { began = append(began, i) }) }
	for i := range 5 {
		if !enter(i) {
			t.Errorf("%d is refused", i)
		}
	}
	if len(began) != 3 || g.waiting() != 2 || enter(5) {
		t.Errorf("%v are in, %d wait, want 3 and 2 and no more", began, g.waiting())
	}
	g.carry(10) // there is no room
	if g.bulk != 0 || g.most != 3 {
		t.Errorf("%d places in bulk, %d at once", g.bulk, g.most)
	}
	g.leave()
	g.leave()
	if len(began) != 5 || began[3] != 3 || began[4] != 4 {
		t.Errorf("%v have begun, want them in the order in which they came", began)
	}
	g.leave()
	g.leave()
	g.carry(10)
	if g.bulk != 2 {
		t.Errorf("%d places in bulk, want 2: one is left to the others", g.bulk)
	}
	enter(6)
	if len(began) != 5 {
		t.Errorf("%v have begun beside those in bulk", began)
	}
	idle := gate{cap: 3}
	if idle.carry(10); idle.bulk != 2 {
		t.Errorf("%d places in bulk when nobody else is in, want 2: one is left to the others",
			idle.bulk)
	}
	g.carry(0)
	if len(began) != 6 || g.most > 3 {
		t.Errorf("%v have begun, %d at once", began, g.most)
	}
}

func TestLine(t *testing.T) {
	var l line
	if wait, begun, dropped := l.pass(10, 20, 1e9, 100); wait != 0 || begun != 10 || dropped != 0 {
		t.Errorf("with room: wait %v, %v begin, %v dropped", wait, begun, dropped)
	}
	wait, begun, dropped := l.pass(150, 20, 1e9, 100)
	// 100 wait at the end, 50 on average, 20 a second.
	if wait != 2.5e9 || begun != 20 || dropped != 30 {
		t.Errorf("without: wait %v, %v begin, %v dropped", wait, begun, dropped)
	}
	sum := 0.0
	for range 10 {
		_, begun, _ := l.pass(0, 12.5, 1e9, 100)
		sum += begun
	}
	if sum != 100 || l.waiting != 0 {
		t.Errorf("%v begin afterwards, %v wait, want 100 and 0", sum, l.waiting)
	}
}
