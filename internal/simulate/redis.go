package simulate

// redis is one server with a queue, in which commands wait for earlier commands. Commands that are
// simulated one by one have their place in the queue. The other commands are a stream that takes a
// share of the server. A command that comes finds a random amount of the stream waiting, drawn from
// the average over time of a queue with Poisson arrivals.
type redis struct {
	free  int64 // when the commands that are simulated one by one are done
	busy  float64
	kinds []stream
}

// stream is commands of one kind that are not simulated one by one.
type stream struct {
	share   float64 // share of the server's time
	service float64 // nanoseconds of one command
}

// mostStream is the largest share that streams may take. Above it the queue grows, and the excess
// is added to the waiting work.
const mostStream = 0.98

// carry sets the server's streams from now on. The work that the server can't do in a time of this
// length is added to the waiting work, but at most atMost, because a process that gives up sends no
// more commands.
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

// wait returns how long a command that comes now waits for its turn.
func (q *redis) wait(r random, now int64) int64 { return max(q.free-now, 0) + q.stream(r) }

// serve puts a command into the queue and returns the time when it is done. Call serve in the order
// of time.
func (q *redis) serve(r random, now, service int64) (done int64) {
	wait := q.wait(r, now)
	q.free = max(q.free, now) + int64(float64(service)/(1-q.busy))
	return now + wait + service
}

// stream draws how much work of the streams is waiting. By Pollaczek and Khinchin, in a queue with
// Poisson arrivals this is the sum of the remaining times of several services, and the number of
// services has a geometric distribution.
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
