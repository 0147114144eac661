package simulate

// load lets the origin load, and then stores the result.
func (s *simulation) load(f *flight) {
	came, begun := s.now, false
	entered := s.origin.enter(func() {
		if f.ended {
			s.origin.leave()
			return
		}
		begun = true
		wait := s.now - came
		s.loadWait = max(s.loadWait, wait)
		f.loading = true
		s.loads.add(s.now, 1)
		if !f.alone {
			f.key.loads++
			s.result.MostOfOne = max(s.result.MostOfOne, f.key.loads)
		}
		f.took = min(int64(s.lognormal(float64(s.Load), s.Sigma)), int64(s.LoadTimeout)-wait)
		s.after(f.took, func() {
			s.giveBack(f)
			if !f.ended {
				s.store(f)
			}
		})
	})
	switch {
	case !entered:
		s.giveBack(f)
		s.expire(f)
		s.answer(f, bad)
	case !begun:
		s.plan(came+int64(s.LoadTimeout), func() {
			if !begun && !f.ended {
				s.giveBack(f)
				s.expire(f)
				s.answer(f, bad)
			}
		})
	}
}

// giveBack returns a flight's place at the origin and its part of the fleet's budget.
func (s *simulation) giveBack(f *flight) {
	if f.permit {
		f.permit = false
		s.commands.add(s.now, 1)
		s.budget.leave()
	}
	if f.loading {
		f.loading = false
		s.origin.leave()
	}
}

// store stores the result of a load.
func (s *simulation) store(f *flight) {
	end := func() { s.answer(f, good) }
	switch {
	case f.alone:
		end()
	case s.policy.Lease:
		s.fill(f)
	case s.policy.Lock:
		s.send(f, command{service: int64(s.Costs.Get), apply: s.set(f), failed: end, then: func() {
			s.unlock(f)
		}})
	default:
		s.send(f, command{service: int64(s.Costs.Get), apply: s.set(f), failed: end, then: end})
	}
}

// set stores a result, even if there is already a value.
func (s *simulation) set(f *flight) func() int64 {
	return func() int64 {
		s.value(f.key, s.ttl())
		return 0
	}
}

// ttl returns the TTL of a value, with jitter.
func (s *simulation) ttl() int64 {
	return int64(float64(s.TTL) * (1 - s.Jitter*s.Float64()))
}
