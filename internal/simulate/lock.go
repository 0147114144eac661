package simulate

// lock tries to get the lock of a key. If it doesn't get the lock, it polls.
func (s *simulation) lock(f *flight) {
	k, got := f.key, false
	s.send(f, command{
		service: int64(s.Costs.Get),
		apply: func() int64 {
			if got = !k.held(s.now); got {
				k.holder, k.heldUntil = f, s.now+int64(s.Lock)
			}
			return 0
		},
		then: func() {
			if got {
				s.checkAgain(f)
				return
			}
			s.after(int64(s.PollLeast)+int64(s.Float64()*float64(s.PollMost-s.PollLeast)), func() {
				if !f.ended {
					s.poll(f)
				}
			})
		},
		failed: func() { s.alone(f) },
	})
}

// poll checks whether there is a value now.
func (s *simulation) poll(f *flight) {
	s.look(f, func() { s.answer(f, good) }, func() { s.lock(f) })
}

// checkAgain checks whether another flight stored a value before this flight got the lock.
func (s *simulation) checkAgain(f *flight) {
	s.look(f, func() { s.unlock(f) }, func() { s.load(f) })
}

func (s *simulation) look(f *flight, found, missed func()) {
	fresh := false
	s.send(f, command{
		service: int64(s.Costs.Get),
		apply:   func() int64 { fresh = f.key.fresh(s.now); return 0 },
		then: func() {
			if fresh {
				found()
			} else {
				missed()
			}
		},
		failed: func() { s.alone(f) },
	})
}

// unlock gives the lock back, if this flight still has it, and answers.
func (s *simulation) unlock(f *flight) {
	end := func() { s.answer(f, good) }
	s.send(f, command{
		service: int64(s.Costs.Script),
		apply: func() int64 {
			if f.key.holder == f {
				f.key.holder = nil
			}
			return 0
		},
		then: end, failed: end,
	})
}
