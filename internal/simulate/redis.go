package simulate

// redis is one server with a queue: commands wait for those before them. What is asked of it one
// command at a time has its place in the queue. The rest is a stream that takes a share of the
// server; whoever comes finds as much of it waiting as a queue with Poisson arrivals has on average
// over time, a draw each.
type redis struct {
	free  int64 // when the work that came one by one is done
	busy  float64
	kinds []stream
}

// stream is commands of one kind that are not simulated one by one.
type stream struct {
	share   float64 // of the server's time
	service float64 // nanoseconds of one
}

// most share that a stream may take: beyond it what waits grows, which is counted as work.
const mostStream = 0.98

// carry has the server carry these streams from now on. What is more than it can do in a time of
// this length is work that waits, and at most so much of it: whoever gives up asks no more.
func (q *redis) carry(now int64, length, atMost int64, kinds ...stream) {
	q.kinds, q.busy = append(q.kinds[:0], kinds...), 0
	for _, k := range kinds {
		q.busy += k.share
	}
	if q.busy > mostStream {
		excess := (q.busy - mostStream) * float64(length)
		q.free = max(q.free, now) + int64(excess/(1-mostStream))
		for i := range q.kinds {
			q.kinds[i].share *= mostStream / q.busy
		}
		q.busy = mostStream
	}
	q.free = min(q.free, now+atMost)
}

// wait is how long a command that comes now waits for its turn.
func (q *redis) wait(r random, now int64) int64 { return max(q.free-now, 0) + q.stream(r) }

// serve puts a command into the queue and returns when it is done. Calls come in the order of time.
func (q *redis) serve(r random, now, service int64) (done int64) {
	wait := q.wait(r, now)
	q.free = max(q.free, now) + int64(float64(service)/(1-q.busy))
	return now + wait + service
}

// stream draws what of the streams is waiting. In a queue with Poisson arrivals that is the rest of
// as many services as a geometric draw says, by Pollaczek and Khinchin.
func (q *redis) stream(r random) (wait int64) {
	for q.busy > 0 && r.Float64() < q.busy {
		draw := r.Float64() * q.busy
		for i, k := range q.kinds {
			if draw -= k.share; draw < 0 || i == len(q.kinds)-1 {
				wait += int64(r.Float64() * k.service)
				break
			}
		}
	}
	return wait
}
