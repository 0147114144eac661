package locktest

import (
	"math/rand/v2"
	"slices"
	"time"
)

// standContinuing: the lock was given back by the one from whom it is continued, or it has ended,
// when the answer is read.
func standContinuing(e *env) {
	e.continuer(e.b)
	e.standStill(func(s *still) {
		took := s.turn()
		for _, name := range s.names {
			s.from = append(s.from, e.lock(e.a, name))
		}
		for _, held := range s.from {
			s.holds = append(s.holds, s.do(order{Do: doContinue, Name: held.Name(), Token: held.Token(), Wait: 2 * e.limit}))
		}
		e.pass(rand.N(took))
	})
}

// standSeizing: what was seized has ended, and is another's, when the answer is read; or it is
// seized late, from that one.
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

// justSeized says whether a rival may not have heard yet that its lock was seized. It can't have
// been if its token is the larger one.
func (s *still) justSeized(i int) bool {
	r, _ := s.said(s.holds[i])
	late := s.e.fleet.Fenced && r.Token < s.rivals[i].held.Token()
	return s.seizes && !late && time.Since(r.at) < s.e.fleet.Lease
}

// rivalsHeard waits until rivals have heard of what was seized from them.
func (s *still) rivalsHeard() {
	s.e.Helper()
	if !s.seizes {
		return
	}
	for _, hold := range s.holds {
		s.e.pass(time.Until(s.done(hold).at.Add(s.e.fleet.Lease)))
	}
}

// standLockingAll: some of the locks have ended, and are others', when the rest is acquired.
func standLockingAll(e *env) {
	e.standStill(func(s *still) {
		s.all = true
		took := s.turn()
		slices.Sort(s.names) // as they are locked
		hold := s.do(order{Do: doAll, Names: s.names, Wait: 2 * e.limit})
		for range s.names {
			s.holds = append(s.holds, hold)
		}
		e.pass(rand.N(2 * took * time.Duration(len(s.names))))
	})
}

// letFinish lets a process that stood still acquire what it hasn't yet, while rivals have what it
// may have lost.
func (s *still) letFinish() {
	e := s.e
	e.Helper()
	for i, w := range slices.Backward(s.rivals) {
		for began := time.Now(); time.Since(began) < e.fleet.Lease/4 || !s.had(i) && !w.hasReturned(); e.pass(e.fleet.Lease / 100) {
			if s.judge(); s.returned(i) {
				return
			}
			if time.Since(began) > 2*e.limit {
				e.Fatalf("neither one that stood still nor its rival has the lock of %q within %v", s.names[i], 2*e.limit)
			}
		}
		if w.has() {
			e.refused(e.c, w.held)
			e.unlock(w.held)
		}
	}
}

// returned says whether the process has said what became of an acquisition.
func (s *still) returned(i int) bool {
	_, ok := s.said(s.holds[i])
	return ok
}
