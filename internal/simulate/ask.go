package simulate

// command is a command to Redis for a flight.
type command struct {
	service int64
	// Called when the server executes the command; returns its additional time.
	apply  func() (more int64)
	done   func(at int64) // called when the server has executed the command
	then   func()         // called when the flight has the answer
	failed func()         // called when the flight has given up
}

// send sends a command.
func (s *simulation) send(f *flight, c command) {
	leaves := max(s.now, f.sends)
	if s.host != nil {
		leaves = s.host.send(s.now, f)
	}
	half := int64(s.Costs.RoundTrip) / 2
	s.plan(leaves+half, func() {
		if s.outage.has(s.now) {
			s.after(s.patience(f), func() { s.gaveUp(f, c) })
			return
		}
		s.commands.add(s.now, 1)
		service := c.service
		if c.apply != nil {
			service += c.apply()
		}
		s.served += service
		arrived := s.now
		var done int64
		if s.host != nil {
			done = s.host.serve(&s.redis, s.now, service)
		} else {
			done = s.redis.serve(s.random, s.now, service)
		}
		if c.done != nil {
			c.done(done)
		}
		if done-arrived > int64(s.Timeout) {
			s.plan(arrived+int64(s.Timeout), func() { s.gaveUp(f, c) })
			return
		}
		back := done + half + s.noise()
		if s.host != nil {
			s.plan(back, func() {
				s.plan(s.host.receive(s.now, f), func() {
					if !f.ended {
						c.then()
					}
				})
			})
			return
		}
		s.plan(back, func() {
			if !f.ended {
				c.then()
			}
		})
	})
}

func (s *simulation) gaveUp(f *flight, c command) {
	if !f.ended {
		c.failed()
	}
}

// ask looks a key up.
func (s *simulation) ask(f *flight) {
	var fresh, stale bool
	s.send(f, command{
		service: int64(s.Costs.Get),
		apply: func() int64 {
			fresh, stale = f.key.fresh(s.now), f.key.stale(s.now) && s.policy.Stale
			return 0
		},
		then: func() {
			switch {
			case fresh:
				s.answer(f, good)
			case stale:
				s.refresh(f)
			default:
				f.missed = true
				s.miss(f)
			}
		},
		failed: func() { f.missed = true; s.alone(f) },
	})
}

// refresh answers the callers with a stale value. The flight goes on without callers and asks for
// the lease.
func (s *simulation) refresh(f *flight) {
	s.tell(f, old, 0)
	f.behind = true
	if f.key.flights[f.replica] == f {
		delete(f.key.flights, f.replica)
	}
	s.lease(f)
}

// miss does the policy's next step for a key without a value.
func (s *simulation) miss(f *flight) {
	switch {
	case s.policy.Lease:
		s.lease(f)
	case s.policy.Lock:
		s.lock(f)
	default:
		s.load(f)
	}
}

// alone continues a flight when Redis doesn't answer.
func (s *simulation) alone(f *flight) {
	f.alone = true
	switch {
	case f.behind:
		s.answer(f, bad)
	case s.FailClosed:
		s.answer(f, bad)
	default:
		s.load(f)
	}
}
