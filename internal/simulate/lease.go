package simulate

import "math"

// lease asks for the right to load a key.
func (s *simulation) lease(f *flight) {
	k := f.key
	var found, granted bool
	s.send(f, command{
		service: int64(s.Costs.Script),
		apply: func() int64 {
			switch {
			case f.behind && k.filled > f.began, !f.behind && k.fresh(s.now):
				found = true
			case !k.held(s.now):
				granted = true
				k.holder, k.heldUntil, f.granted = f, never, s.now
				if f.ended {
					s.expire(f)
				}
			case !f.behind:
				k.waiters = append(k.waiters, f)
			}
			return 0
		},
		then: func() {
			switch {
			case granted:
				s.permit(f)
			case found, f.behind:
				s.answer(f, good)
			}
		},
		failed: func() {
			s.expire(f)
			s.alone(f)
		},
	})
}

// permit takes a part of the fleet's budget before the load, if the fleet has a budget.
func (s *simulation) permit(f *flight) {
	if s.budget.cap == 0 {
		s.load(f)
		return
	}
	s.commands.add(s.now, 1)
	came := s.now
	s.budget.enter(func() {
		if f.ended {
			s.budget.leave()
			return
		}
		f.permit = true
		if s.now == came {
			s.load(f)
			return
		}
		s.messages.add(s.now, int64(s.replicas.up))
		s.after(int64(s.Costs.Delivery)+s.noise(), func() {
			if !f.ended {
				s.load(f)
			}
		})
	})
}

// fill stores a result if the flight still has the lease, and tells the waiting flights.
func (s *simulation) fill(f *flight) {
	k := f.key
	var told []*flight
	s.send(f, command{
		service: int64(s.Costs.Fill),
		apply: func() (more int64) {
			if k.holder != f {
				return 0 // refused
			}
			k.holder = nil
			told, k.waiters = k.waiters, nil
			s.value(k, s.ttl())
			s.early(k, f.took)
			if len(told) == 0 {
				return 0
			}
			s.commands.add(s.now, 1)
			s.messages.add(s.now, int64(s.replicas.up))
			return int64(s.Costs.Message) * int64(s.replicas.up)
		},
		done: func(at int64) {
			for _, w := range told {
				s.plan(at+int64(s.Costs.Delivery)+s.noise(), func() {
					if !w.ended {
						s.answer(w, good)
					}
				})
			}
		},
		then:   func() { s.answer(f, good) },
		failed: func() { s.expire(f); s.answer(f, good) },
	})
}

// early plans the first early refresh of a value. A reader that comes when the value stays fresh
// for a time t refreshes it with probability e^(-t/(beta took)). So for a given rate of readers,
// the moment of the first early refresh is one random draw.
func (s *simulation) early(k *key, took int64) {
	if !s.policy.Early {
		return
	}
	scale := s.Beta * float64(took)
	lots := k.share * s.demand.at(min(k.freshUntil, s.end)) * scale
	draw := s.exponential(1)
	if draw >= lots {
		return
	}
	at := max(k.freshUntil-int64(scale*math.Log(lots/draw)), s.now)
	if at >= s.end {
		return
	}
	turn := k.turn
	s.plan(at, func() {
		if k.turn != turn || s.outage.has(s.now) || k.held(s.now) {
			return
		}
		// The reader itself is one of the hits. Readers that decide to refresh the value during
		// this load ask for the lease, but don't get it.
		f := s.begin(k, s.replicas.any(s.random), 0)
		if k.flights[f.replica] == f {
			delete(k.flights, f.replica)
		}
		f.behind = true
		left := float64(k.freshUntil - s.now)
		more := lots * (math.Exp(-max(left-float64(took), 0)/scale) - math.Exp(-left/scale))
		s.bulk.scripts += s.poisson(min(more, float64(s.replicas.up)))
		s.lease(f)
	})
}

// expire plans the end of a flight's lease, because the lease is no longer renewed. When the lease
// has ended, the waiting flights ask again.
func (s *simulation) expire(f *flight) {
	k := f.key
	if k.holder != f || !s.policy.Lease {
		return
	}
	third := int64(s.Lease) / 3
	k.heldUntil = f.granted + (s.now-f.granted)/third*third + int64(s.Lease)
	s.plan(k.heldUntil+1, func() {
		if k.holder == f {
			k.holder = nil
			s.retry(k)
		}
	})
}

// retry lets the waiting flights ask again.
func (s *simulation) retry(k *key) {
	waiters := k.waiters
	k.waiters = nil
	for _, w := range waiters {
		if !w.ended {
			s.after(s.noise(), func() {
				if !w.ended {
					s.lease(w)
				}
			})
		}
	}
	if k.stale(s.now) && !s.outage.has(s.now) {
		s.countStale(k)
		s.expect(k, s.now)
	}
}
