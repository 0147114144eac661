package simulate

// events is a queue of planned events, the earliest first. Events at the same moment are in the
// order in which they were planned.
type events struct {
	heap    []event
	planned uint64
}

type event struct {
	at    int64 // nanoseconds
	order uint64
	do    func()
}

func (e event) before(other event) bool {
	return e.at < other.at || e.at == other.at && e.order < other.order
}

func (q *events) plan(at int64, do func()) {
	q.planned++
	q.heap = append(q.heap, event{at, q.planned, do})
	h := q.heap
	i := len(h) - 1
	one := h[i]
	for i > 0 {
		up := (i - 1) / 2
		if !one.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = one
}

// next removes and returns the earliest event. The queue must not be empty.
func (q *events) next() event {
	h := q.heap
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{} // for the garbage collector
	h = h[:len(h)-1]
	q.heap = h
	i := 0
	for 2*i+1 < len(h) {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(last) {
			break
		}
		h[i] = h[down]
		i = down
	}
	if len(h) > 0 {
		h[i] = last
	}
	return first
}

func (q *events) empty() bool { return len(q.heap) == 0 }
