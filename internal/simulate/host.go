package simulate

// host is one machine on which all processes and Redis run. Its cores begin work in the order in
// which the work comes.
type host struct {
	cores  []int64 // when each core has finished its work
	client int64   // processor time for sending a command, and for its answer, half each
	wake   int64   // processor time for each caller that is woken
	// When each process has started all its callers; before, it doesn't handle answers.
	ready []int64
	took  []int64 // latencies
}

// run gives a core work that comes now, and returns the time when the work is done.
func (h *host) run(now, work int64) (done int64) {
	best := 0
	for i, free := range h.cores {
		if free < h.cores[best] {
			best = i
		}
	}
	h.cores[best] = max(h.cores[best], now) + work
	return h.cores[best]
}

func (h *host) send(now int64, f *flight) (sent int64) {
	if now < f.sends {
		return f.sends
	}
	return h.run(now, h.client/2)
}

func (h *host) receive(now int64, f *flight) (done int64) {
	return h.run(max(now, h.ready[f.replica]), h.client/2)
}

// serve lets Redis execute a command after the commands before it. Redis is one of the processes on
// the host.
func (h *host) serve(q *redis, now, service int64) (done int64) {
	q.free = h.run(max(now, q.free), service)
	return q.free
}

// wokenAtOnce is the number of callers that a core wakes before it does other work.
const wokenAtOnce = 8

// wakeAll wakes the callers of a flight.
func (h *host) wakeAll(now int64, f *flight) {
	for left := f.callers; left > 0; left -= wokenAtOnce {
		n := min(left, wokenAtOnce)
		done := h.run(now, int64(n)*h.wake)
		for i := range n {
			h.took = append(h.took, done-int64(n-1-i)*h.wake-f.began)
		}
	}
}
