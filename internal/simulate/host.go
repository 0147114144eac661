package simulate

// host is one machine on which all processes run, and Redis too: its cores take up work in the
// order in which it comes.
type host struct {
	cores  []int64 // when each has done what it has
	client int64   // processor time for sending a command, and for its answer, half each
	wake   int64   // for each caller that is woken
	ready  []int64 // when each process has begun its callers: before, it doesn't look at answers
	took   []int64 // latencies
}

// run has a core do work that comes now, and returns when it is done.
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

// serve has Redis, one process of many, do a command after those before it.
func (h *host) serve(q *redis, now, service int64) (done int64) {
	q.free = h.run(max(now, q.free), service)
	return q.free
}

// wokenAtOnce is how many callers a core wakes before other work has its turn.
const wokenAtOnce = 8

// wakeAll has the callers of a flight run.
func (h *host) wakeAll(now int64, f *flight) {
	for left := f.callers; left > 0; left -= wokenAtOnce {
		n := min(left, wokenAtOnce)
		done := h.run(now, int64(n)*h.wake)
		for i := range n {
			h.took = append(h.took, done-int64(n-1-i)*h.wake-f.began)
		}
	}
}
