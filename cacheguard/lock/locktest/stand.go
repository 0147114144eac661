package locktest

import (
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// still is a process that works on several names and is stopped at some point of this work. For
// each of these names a rival wants the lock, too.
type still struct {
	*child
	names  []string
	before []lock.Lock // locks of other holders, given back while the process is stopped
	from   []lock.Lock // like the locks in before, but the process may have taken them over
	// The process may have taken a rival's lock; the rival learns of that within a lease.
	seizes bool
	all    bool  // the process has all locks or none, by one order
	holds  []int // by name: the order that acquires the process' own lock
	rivals []*waiter
	// The time for which the process is stopped; 0: until the rivals have the locks.
	after time.Duration
	on    bool // the process goes on
	next  int  // the next report to check
}

// namesOfStill is the number of names. It is large enough to find defects that show only with some
// luck.
const namesOfStill = 8

// standStill stops three processes at a point that prepare reaches. The first is stopped for less
// than a lease, the second for about a lease, and the third for longer, until other holders get the
// locks. As soon as a process has a lock, the case asks the process whether it believes that it has
// the lock. Two holders have had one lock if both of these are true: the answer is yes although a
// rival got the lock before the case asked, and the Err of the rival's lock is still nil after the
// answer. If an acquisition of a stopped process returns an error, the case ignores the error.
func (e *env) standStill(prepare func(s *still)) {
	e.Helper()
	about := e.fleet.Lease*9/10 + rand.N(e.fleet.Lease/5)
	since := time.Now()
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
				wallclock.CatchUp(since)
				resume(s.cmd.Process)
				s.on = true
				left--
			}
			s.judge()
		}
		if time.Since(began) > 2*e.limit {
			e.Fatalf("others don't have within %v what one had, or wanted, who stands still",
				2*e.limit)
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

// mayGoOn reports whether the process was stopped for long enough.
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

// has reports whether the waiter has the lock, or had it.
func (w *waiter) has() bool { return w.hasReturned() && w.err == nil }

// judge checks the reports of the process since it went on.
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
			s.e.Fatalf("a process that stood still has ended: %s\n%s", s.cmd.ProcessState,
				s.stderr.String())
		}
		for i, hold := range s.holds {
			if r.ID == hold && r.Kind == reportDone && r.Err == "" {
				s.alone(i)
			}
		}
	}
}

// alone checks that the process doesn't believe that it has a lock if its rival had this lock
// before the case asked, and still has it.
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

// had reports whether the process has said that it has, or had, a lock.
func (s *still) had(i int) bool {
	r, ok := s.said(s.holds[i])
	return ok && r.Err == ""
}

// said returns the process' report about an order, if the process has sent one.
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

// release makes the process and its rival give a lock back, and checks that the next caller can
// have it.
func (s *still) release(i int) {
	e, w := s.e, s.rivals[i]
	e.Helper()
	if w.has() && !s.seizes && !s.all {
		e.refused(e.c, w.held) // late requests have done no harm to the lock
		e.unlock(w.held)
	}
	for began := time.Now(); !w.hasReturned(); e.pass(e.fleet.Lease / 100) {
		if s.had(i) {
			break
		}
		if time.Since(began) > e.limit {
			e.Fatalf("neither one that stood still nor its rival has the lock of %q within %v",
				s.names[i], e.limit)
		}
	}
	if w.has() { // the rival got the lock a moment ago, or it was unlocked above
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

// acquires orders the process to acquire all its locks, which takes a while.
func (s *still) acquires() {
	for _, name := range s.names {
		s.holds = append(s.holds, s.do(order{Do: doLock, Name: name, Wait: 2 * s.e.limit}))
	}
}

// hasAll waits until the process has all its locks.
func (s *still) hasAll() {
	s.e.Helper()
	for _, hold := range s.holds {
		s.child.acquired(hold)
	}
}

// standWaiting: the lock is given back, perhaps to a process that is stopped. When this process
// learns that it got the lock, another holder has it.
func standWaiting(e *env) {
	e.standStill(func(s *still) {
		for _, name := range s.names {
			s.before = append(s.before, e.lock(e.a, name))
		}
		s.acquires()
		e.pass(e.fleet.Lease/5 + e.fleet.Poll) // the calls of the process wait
		e.isHeld(s.before...)
	})
}

// standAcquiring: a process requests a lock, and is stopped until the reply is no longer true.
func standAcquiring(e *env) {
	e.standStill(func(s *still) {
		took := s.turn()
		s.acquires()
		e.pass(rand.N(took))
	})
}

// turn returns the approximate time that the process takes to acquire a lock that no other caller
// wants, or to give it back.
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

// standUnlocking: an Unlock is carried out late, when another holder has the lock.
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
