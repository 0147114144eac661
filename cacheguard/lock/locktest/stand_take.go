package locktest

import (
	"math/rand/v2"
	"slices"
	"time"
)

// standContinuing: a process is stopped during Continue. Before it reads the reply, the previous
// holder gives the lock back, or the lock ends.
func standContinuing(e *env) {
	e.continuer(e.b)
	e.standStill(func(s *still) {
		took := s.turn()
		for _, name := range s.names {
			s.from = append(s.from, e.lock(e.a, name))
		}
		for _, held := range s.from {
			s.holds = append(s.holds,
				s.do(order{
					Do: doContinue, Name: held.Name(), Token: held.Token(), Wait: 2 * e.limit,
				}))
		}
		e.pass(rand.N(took))
	})
}

// standSeizing: a process is stopped during SeizeUnsafely. Before it reads the reply, the lock has
// ended and another holder has it. Or the lock is seized late, from this other holder.
func standSeizing(e *env) {
	e.seizer(e.b)
	e.standStill(func(s *still) {
		s.seizes = true
		took := s.turn()
		for _, name := range s.names {
			s.from = append(s.from, e.lock(e.a, name))
		}
		for _, name := range s.names {
			s.holds = append(s.holds, s.do(order{Do: doSeize, Name: name, Wait: 2 * e.limit}))
		}
		e.pass(rand.N(took))
	})
}

// justSeized reports whether a rival may not know yet that its lock was seized. If the rival's
// token is the larger one, its lock can't have been seized.
func (s *still) justSeized(i int) bool {
	r, _ := s.said(s.holds[i])
	late := s.e.fleet.Fenced && r.Token < s.rivals[i].held.Token()
	return s.seizes && !late && time.Since(r.at) < s.e.fleet.Lease
}

// rivalsHeard waits until the rivals know which of their locks were seized.
func (s *still) rivalsHeard() {
	s.e.Helper()
	if !s.seizes {
		return
	}
	for _, hold := range s.holds {
		s.e.pass(time.Until(s.done(hold).at.Add(s.e.fleet.Lease)))
	}
}

// standLockingAll: when the last locks are acquired, some of the first locks have ended, and other
// holders have them.
func standLockingAll(e *env) {
	e.standStill(func(s *still) {
		s.all = true
		took := s.turn()
		slices.Sort(s.names) // in the order in which they are locked
		hold := s.do(order{Do: doAll, Names: s.names, Wait: 2 * e.limit})
		for range s.names {
			s.holds = append(s.holds, hold)
		}
		e.pass(rand.N(2 * took * time.Duration(len(s.names))))
	})
}

// letFinish lets a process that was stopped acquire its missing locks, while rivals have the locks
// that it may have lost.
func (s *still) letFinish() {
	e := s.e
	e.Helper()
	for i, w := range slices.Backward(s.rivals) {
		for began := time.Now(); time.Since(began) < e.fleet.Lease/4 ||
			!s.had(i) && !w.hasReturned(); e.pass(e.fleet.Lease / 100) {
			if s.judge(); s.returned(i) {
				return
			}
			if time.Since(began) > 2*e.limit {
				e.Fatalf("neither one that stood still nor its rival has the lock of %q within %v",
					s.names[i], 2*e.limit)
			}
		}
		if w.has() {
			e.refused(e.c, w.held)
			e.unlock(w.held)
		}
	}
}

// returned reports whether the process has reported the result of an acquisition.
func (s *still) returned(i int) bool {
	_, ok := s.said(s.holds[i])
	return ok
}
