package locktest

import (
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

// still is a process that is stopped at some point with several names, all of which a rival wants
// as well.
type still struct {
	*child
	names  []string
	before []lock.Lock // by others, who give them back when the process stands still
	from   []lock.Lock // the same, if they weren't taken over
	seizes bool        // it may have taken a rival's lock, who hears of that within a lease
	all    bool        // it has all locks or none, by one order
	holds  []int       // its own, by name: orders that acquire
	rivals []*waiter
	after  time.Duration // it goes on; 0: when the rivals have the locks
	on     bool
	next   int // report to be looked at
}

// namesOfStill are so many that the defects that need some luck to show are seen.
const namesOfStill = 8

// standStill has three processes stand still at a point that is reached by prepare: for less than a
// lease, for about one, and for as long as it takes others to get the locks, which is more. Whoever
// has a lock is asked at once whether it believes so: if Err of one that stood still is nil when
// another had the lock before it was asked, and Err of that one is nil even after that, both had
// it. An error of an acquisition that stood still is none of a case's business.
func (e *env) standStill(prepare func(s *still)) {
	e.Helper()
	about := e.fleet.Lease*9/10 + rand.N(e.fleet.Lease/5)
	var all []*still
	for _, after := range []time.Duration{e.fleet.Lease / 3, about, 0} {
		s := &still{child: e.start(), after: after}
		for range namesOfStill {
			s.names = append(s.names, e.name())
		}
		all = append(all, s)
	}
	for _, s := range all {
		prepare(s)
		s.stand()
	}
	began := time.Now()
	for _, s := range all {
		for _, held := range s.before {
			e.unlock(held)
		}
		for _, held := range s.from {
			giveBack(held, e.limit)
		}
		for _, name := range s.names {
			s.rivals = append(s.rivals, e.wait(e.b, name))
		}
	}
	for left := len(all); left > 0; e.pass(e.fleet.Lease / 100) {
		for _, s := range all {
			if !s.on && s.mayGoOn(time.Since(began)) {
				resume(s.cmd.Process)
				s.on = true
				left--
			}
			s.judge()
		}
		if time.Since(began) > 2*e.limit {
			e.Fatalf("others don't have within %v what one had, or wanted, who stands still", 2*e.limit)
		}
	}
	for resumed := time.Now(); time.Since(resumed) < e.fleet.Lease/2; e.pass(e.fleet.Lease / 100) {
		for _, s := range all {
			s.judge()
		}
	}
	for _, s := range all {
		s.rivalsHeard()
		for i := range s.names {
			s.alone(i)
		}
	}
	for _, s := range all {
		if s.all {
			s.letFinish()
		}
		for i := range s.names {
			s.release(i)
		}
	}
}

// mayGoOn says whether it has stood still for long enough.
func (s *still) mayGoOn(stood time.Duration) bool {
	if s.after > 0 {
		return stood >= s.after
	}
	for _, w := range s.rivals {
		if !w.hasReturned() {
			return false
		}
	}
	return true
}

func (w *waiter) hasReturned() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// has says whether it has the lock, or had.
func (w *waiter) has() bool { return w.hasReturned() && w.err == nil }

// judge looks at what the process has said since it went on.
func (s *still) judge() {
	s.e.Helper()
	if !s.on {
		return
	}
	s.mu.Lock()
	reports := s.reports
	s.mu.Unlock()
	for ; s.next < len(reports); s.next++ {
		r := reports[s.next]
		if r.Kind == reportGone {
			<-s.gone
			s.e.Fatalf("a process that stood still has ended: %s\n%s", s.cmd.ProcessState, s.stderr.String())
		}
		for i, hold := range s.holds {
			if r.ID == hold && r.Kind == reportDone && r.Err == "" {
				s.alone(i)
			}
		}
	}
}

// alone sees that the process doesn't believe to have a lock that its rival had before it was asked
// and has still.
func (s *still) alone(i int) {
	s.e.Helper()
	if !s.rivals[i].has() || !s.had(i) || s.justSeized(i) {
		return
	}
	r := s.done(s.do(order{Do: doErr, Hold: s.holds[i]}))
	if r.Err == "" && s.rivals[i].held.Err() == nil {
		s.e.Fatalf("two have the lock of %q: one that stood still, and another", s.names[i])
	}
}

// had says whether the process has said that it has, or had, a lock.
func (s *still) had(i int) bool {
	r, ok := s.said(s.holds[i])
	return ok && r.Err == ""
}

// said is what the process has said of an order, if it has.
func (s *still) said(id int) (report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		if r.ID == id && r.Kind == reportDone {
			return r, true
		}
	}
	return report{}, false
}

// release has the process and its rival give a lock back, after which the next one can have it.
func (s *still) release(i int) {
	e, w := s.e, s.rivals[i]
	e.Helper()
	if w.has() && !s.seizes && !s.all {
		e.refused(e.c, w.held) // what came late has done it no harm
		e.unlock(w.held)
	}
	for began := time.Now(); !w.hasReturned(); e.pass(e.fleet.Lease / 100) {
		if s.had(i) {
			break
		}
		if time.Since(began) > e.limit {
			e.Fatalf("neither one that stood still nor its rival has the lock of %q within %v", s.names[i], e.limit)
		}
	}
	if w.has() { // since a moment ago, or it was unlocked above
		giveBack(w.held, e.limit)
	}
	if r := s.done(s.holds[i]); r.Err == "" {
		s.done(s.do(order{Do: doUnlock, Hold: s.holds[i]}))
	}
	e.happens("the rival of one that stood still has had the lock", w.over)
	if w.err == nil {
		giveBack(w.held, e.limit)
	}
	e.unlock(e.lock(e.c, s.names[i]))
}

// acquires has the process acquire all its locks, which takes a while.
func (s *still) acquires() {
	for _, name := range s.names {
		s.holds = append(s.holds, s.do(order{Do: doLock, Name: name, Wait: 2 * s.e.limit}))
	}
}

// hasAll waits until it has them.
func (s *still) hasAll() {
	s.e.Helper()
	for _, hold := range s.holds {
		s.child.acquired(hold)
	}
}

// standWaiting: the lock is given back, maybe to one that doesn't hear of it. When it does it is
// another's.
func standWaiting(e *env) {
	e.standStill(func(s *still) {
		for _, name := range s.names {
			s.before = append(s.before, e.lock(e.a, name))
		}
		s.acquires()
		e.pass(e.fleet.Lease/5 + e.fleet.Poll) // they wait
		e.isHeld(s.before...)
	})
}

// standAcquiring: what was asked is answered, and the answer is read when it isn't true any more.
func standAcquiring(e *env) {
	e.standStill(func(s *still) {
		took := s.turn()
		s.acquires()
		e.pass(rand.N(took))
	})
}

// turn is about how long the process takes to have a lock that nobody else wants, or to give it
// back.
func (s *still) turn() time.Duration {
	s.e.Helper()
	began := time.Now()
	hold, _ := s.lock(s.e.name())
	s.unlock(hold)
	return time.Since(began)/2 + 1
}

func standHolding(e *env) {
	e.standStill(func(s *still) {
		s.acquires()
		s.hasAll()
		e.pass(rand.N(e.fleet.Lease)) // at any point between two renewals
	})
}

// standUnlocking: what unlocks late finds the lock to be another's.
func standUnlocking(e *env) {
	e.standStill(func(s *still) {
		took := s.turn()
		s.acquires()
		s.hasAll()
		for _, hold := range s.holds {
			s.do(order{Do: doUnlock, Hold: hold})
		}
		e.pass(rand.N(took))
	})
}
