package simulate

import "math"

// request is the first request for a key that finds no fresh value.
func (s *simulation) request(k *key) {
	switch {
	case k.arriving:
	case s.outage.has(s.now): // counted in bulk
		s.expect(k, s.outage.to)
	case k.stale(s.now):
		if k.staleSince > 0 && k.held(s.now) {
			return // it is counted later, when the new value is stored
		}
		s.expect(k, k.staleUntil)
		s.countStale(k)
		k.staleSince = s.now + 1
		s.ask(s.begin(k, s.replicas.any(s.random), 1))
	default:
		s.countStale(k)
		k.arriving = true
		s.arrive(k)
	}
}

// arrive is a request for a key without a value. It also plans the next request that begins a
// flight.
func (s *simulation) arrive(k *key) {
	if r, ok := s.idle(k); ok {
		s.ask(s.begin(k, r, 1))
	}
	s.follow(k)
}

// follow plans the next request. It cancels the earlier plan, because the rate depends on the
// number of processes that have a flight.
func (s *simulation) follow(k *key) {
	k.chain++
	up := s.replicas.up
	free := up
	if s.policy.Share {
		free -= len(k.flights)
	}
	if free <= 0 {
		return // no request is planned until a flight ends
	}
	rate := k.share * s.demand.at(s.now) * float64(free) / float64(up)
	at := s.now + 1 + int64(min(s.exponential(1/rate), never))
	if at >= s.end {
		return
	}
	turn, chain := k.turn, k.chain
	s.plan(at, func() {
		if k.turn == turn && k.chain == chain && k.arriving {
			s.arrive(k)
		}
	})
}

// idle picks a process at random. If processes share flights, it picks a process that has no flight
// for the key.
func (s *simulation) idle(k *key) (int32, bool) {
	for {
		r := s.replicas.any(s.random)
		if !s.policy.Share || k.flights[r] == nil {
			return r, true
		}
		if len(k.flights) >= s.replicas.up {
			return 0, false
		}
	}
}

// begin begins a flight for callers of a process that request a key.
func (s *simulation) begin(k *key, replica int32, callers int) *flight {
	f := &flight{
		key: k, replica: replica, began: s.now, fresh: k.freshTime(s.now), callers: callers,
	}
	s.arrived += int64(callers)
	s.replicas.add(f)
	if s.policy.Share && k.flights[replica] == nil {
		if k.flights == nil {
			k.flights = map[int32]*flight{}
		}
		k.flights[replica] = f
	}
	return f
}

// endFlight removes a flight from its process.
func (s *simulation) endFlight(f *flight) {
	f.ended = true
	s.replicas.remove(f)
	k := f.key
	if k.flights[f.replica] == f {
		delete(k.flights, f.replica)
	}
	if k.arriving && s.policy.Share {
		s.follow(k)
	}
}

// outcome is the kind of answer to a request.
type outcome byte

const (
	good outcome = iota
	old          // a stale value
	bad          // an error
	lost         // lost together with its process
)

// answer ends a flight. The callers that began the flight, and the callers that have joined it, get
// their answers.
func (s *simulation) answer(f *flight, how outcome) {
	if f.behind {
		s.endFlight(f)
		return
	}
	joined := s.joined(f)
	s.endFlight(f)
	s.arrived += joined
	s.tell(f, how, joined)
}

// joined draws the number of callers that have joined a flight after it began.
func (s *simulation) joined(f *flight) int64 {
	if !s.policy.Share || s.bulk == nil || f.began >= s.end || f.key.flights[f.replica] != f {
		return 0
	}
	part := f.key.share / float64(s.replicas.up)
	if fresh := f.key.freshTime(s.now) - f.fresh; fresh > 0 {
		s.bulk.fresh(s.now, s.now+fresh, -part) // these callers are not hits
	}
	return s.poisson(part * s.demand.during(f.began, min(s.now, s.end)))
}

// shown is how many joined callers of a flight have their latency drawn, at most. Each of them
// stands for an equal number of callers.
const shown = 32

// tell counts the answers of a flight and records their latency.
func (s *simulation) tell(f *flight, how outcome, joined int64) {
	callers := int64(f.callers)
	s.count(f, how, callers+joined)
	if s.host != nil {
		s.host.wakeAll(s.now, f)
		return
	}
	took := s.now - f.began
	s.took(f.missed, took, callers)
	crowd := float64(joined) * float64(s.Costs.Wake)
	for left, n := joined, min(joined, shown); n > 0; n-- {
		each := left / n
		s.took(f.missed, int64(s.Float64()*float64(took)+s.Float64()*crowd), each)
		left -= each
	}
}

func (s *simulation) count(f *flight, how outcome, n int64) {
	switch {
	case how == old:
		s.result.Stale += n
	case how == bad, how == lost:
		s.result.Errors += n
		if how == lost {
			s.result.Lost += n
		}
		if f.alone {
			s.result.Failover += n
		}
	case f.missed:
		s.result.Loaded += n
	default:
		s.result.Fresh += n
	}
}

// took records a latency of n requests.
func (s *simulation) took(missed bool, latency, n int64) {
	s.all.Add(latency, n)
	if s.Slices > 0 {
		s.slices[s.sliceOf(s.now)].Add(latency, n)
	}
	if missed {
		s.missed.Add(latency, n)
	}
}

// countStale counts the requests that got a stale value while it was being refreshed.
func (s *simulation) countStale(k *key) {
	if k.staleSince == 0 {
		return
	}
	from, to := k.staleSince, min(s.now, k.staleUntil, s.end)
	k.staleSince = 0
	if from >= to {
		return
	}
	n := s.poisson(k.share * s.demand.during(from, to))
	s.arrived += n
	s.bulk.stale += n
	// Each process asks for the lease once.
	up := float64(s.replicas.up)
	s.bulk.scripts += s.poisson(up * (1 - math.Exp(-float64(n)/up)))
}
