package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var waitCases = []spec{
	{"wait: until the holder unlocks", waiting, waitHandover},
	{"wait: one after another", waiting, waitInTurn},
	{"wait: how long a hand-over takes", waiting, waitLatency},
	{"wait: the lock disappears", waiting, waitDisappears},
	{"wait: deadline", contexts, waitDeadline},
	{"wait: cancelled", contexts, waitCancelled},
	{"wait: no ghost of one who left", ghosts, waitNoGhost},
	{"wait: left as the lock becomes free", ghosts, waitLeftAtHandover},
	{"wait: left while acquiring", ghosts, waitLeftAcquiring},
}

func waitHandover(e *env) {
	name := e.name()
	held := e.lock(e.a, name)
	// To another locker, to the same locker, and back.
	for _, l := range []lock.Locker{e.b, e.b, e.c, e.a} {
		w := e.wait(l, name)
		e.pass(e.fleet.Lease / 10)
		w.waits(held)
		e.unlock(held)
		held = w.got()
	}
	e.refused(e.b, held)
	e.unlock(held)
}

// waitInTurn doesn't check the order of the calls.
func waitInTurn(e *env) {
	name, g := e.name(), newGuard(e.fleet.Fenced)
	first := e.lock(e.a, name)
	all := e.crew()
	const waiters = 12
	failed := make(chan error, waiters)
	for i := range waiters {
		all.do(func() {
			failed <- e.enterOnce(e.fleet.Lockers[i%len(e.fleet.Lockers)], name, g, entersByLock)
		})
	}
	e.pass(e.fleet.Lease / 10)
	e.unlock(first)
	began := time.Now()
	all.end()
	g.judge(e)
	close(failed)
	e.noneFailed(failed, g.at.Before(began.Add(e.limit/2)))
}

// waitLatency measures the time of a hand-over. It fails only if waiting calls aren't woken at all,
// because then each hand-over takes a lease.
func waitLatency(e *env) {
	name := e.name()
	lockers := e.fleet.Lockers
	held := e.lock(lockers[0], name)
	var took []time.Duration
	for i := range 30 {
		w := e.wait(lockers[(i+1)%len(lockers)], name)
		e.pass(3*time.Millisecond + time.Duration(rand.Int64N(int64(e.fleet.Poll)+1)))
		w.waits(held)
		began := time.Now()
		e.unlock(held)
		held = w.got()
		took = append(took, w.at.Sub(began))
	}
	e.unlock(held)
	slices.Sort(took)
	median, p99 := took[len(took)/2], took[len(took)*99/100]
	e.Logf("from Unlock to the next Lock: median %v, p99 %v", median, p99)
	e.soon("half of the waiting calls got the lock", median, e.prompt)
}

// waitDisappears: no message wakes the waiting calls. They send requests by themselves when the
// holder's lease would be over.
func waitDisappears(e *env) {
	e.needsSteal()
	held := e.lock(e.a, e.name())
	first, second := e.wait(e.b, held.Name()), e.wait(e.c, held.Name())
	e.pass(e.fleet.Lease / 10)
	first.waits(held)
	began := time.Now()
	e.fleet.Steal(held.Name())
	first, second = e.first(first, second)
	next := first.got()
	took := first.at.Sub(began)
	e.Logf("the next holder got a lock that had disappeared: after %v", took)
	e.soon("the next holder got a lock that had disappeared", took,
		2*e.fleet.Lease+e.fleet.Poll+time.Second)
	second.waits(next)
	e.unlock(next)
	e.unlock(second.got())
	e.saysLost(held)
}

func waitDeadline(e *env) {
	held := e.lock(e.a, e.name())
	for _, l := range []lock.Locker{e.a, e.b} {
		deadline := time.Now().Add(e.fleet.Lease / 5)
		ctx, cancel := context.WithDeadline(e.ctx, deadline)
		w := e.waitIn(ctx, l, held.Name())
		err := w.returned()
		cancel()
		switch {
		case err == nil:
			e.isHeld(held)
			e.Fatalf("two have the lock of %q", held.Name())
		case !errors.Is(err, context.DeadlineExceeded):
			if w.at.Before(deadline) {
				e.unexpected(w.at.Sub(w.began), err, "Lock returned: %v, before its deadline", err)
			}
			e.unexpected(w.at.Sub(w.began), err,
				"Lock returned: %v; want an error that wraps DeadlineExceeded", err)
		case w.at.Before(deadline):
			e.Errorf("Lock returned %v before its deadline", deadline.Sub(w.at))
		}
		e.soon("Lock returned after its deadline", w.at.Sub(deadline), e.fleet.Lease/2)
	}
	e.refused(e.b, held)
	e.unlock(held)
}

func waitCancelled(e *env) {
	held := e.lock(e.a, e.name())
	for _, l := range []lock.Locker{e.a, e.b} {
		w := e.wait(l, held.Name())
		e.pass(e.fleet.Lease / 10)
		w.waits(held)
		began := time.Now()
		w.cancel()
		switch err := w.returned(); {
		case err == nil:
			e.isHeld(held)
			e.Fatalf("two have the lock of %q", held.Name())
		case !errors.Is(err, context.Canceled):
			if w.at.Before(began) {
				e.unexpected(w.at.Sub(w.began), err, "Lock returned: %v, before it was cancelled",
					err)
			}
			e.Errorf("Lock returned: %v; want an error that wraps Canceled", err)
		}
		e.soon("Lock returned after it was cancelled", w.at.Sub(began), e.fleet.Lease/2)
	}
	e.refused(e.b, held)
	e.unlock(held)
}

// ghost is a call that gives up at some moment. It may acquire the lock, unless another holder has
// it.
type ghost struct {
	name  string
	held  lock.Lock // the lock of another holder, if any
	after time.Duration
	queue bool // the next call waits already before the ghost leaves
}

// leave lets ghosts leave at several moments and checks that they leave nothing behind: the next
// call must get most of the locks long before a lease is over. It needn't get all of them so early,
// because a request that was given up can be carried out late, even after the release that should
// undo it.
func (e *env) leave(held, unlockFirst bool) {
	moments := []time.Duration{0, 0, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 40000} // µs
	var gs []*ghost
	for i, m := range moments {
		g := &ghost{name: e.name(), after: m * time.Microsecond, queue: held && i%3 == 0}
		if held {
			g.held = e.lock(e.a, g.name)
		}
		gs = append(gs, g)
	}
	var leavers, nexts []*waiter
	for _, g := range gs {
		leavers = append(leavers, e.wait(e.b, g.name))
	}
	for i, g := range gs {
		nexts = append(nexts, nil)
		if g.queue {
			nexts[i] = e.wait(e.c, g.name)
		}
	}
	unlocked := make([]error, len(gs))
	gone := make([]time.Time, len(gs)) // when the ghost was told to leave
	free := make([]time.Time, len(gs)) // the time from which the next call could have the lock
	all := e.crew()
	for i, g := range gs {
		all.do(func() {
			unlock := func() {
				if g.held != nil {
					ctx, cancel := context.WithTimeout(e.ctx, e.limit)
					defer cancel()
					unlocked[i] = g.held.Unlock(ctx)
				}
			}
			e.pass(g.after)
			gone[i] = time.Now()
			if unlockFirst {
				go leavers[i].cancel()
				unlock()
				<-leavers[i].over
			} else {
				leavers[i].cancel()
				<-leavers[i].over
				unlock()
			}
			if w := leavers[i]; w.err == nil { // this call got the lock before it left
				giveBack(w.held, e.limit)
			}
			free[i] = time.Now()
		})
	}
	all.end()
	for i, g := range gs {
		switch w := leavers[i]; {
		case unlocked[i] != nil:
			e.unlucky("Unlock of %q: %v", g.name, unlocked[i])
		case w.err == nil && held && !unlockFirst:
			e.Fatalf("two had the lock of %q", g.name)
		case w.err != nil && !errors.Is(w.err, context.Canceled):
			if w.at.Before(gone[i]) {
				e.unexpected(w.at.Sub(w.began), w.err, "Lock returned: %v, before it was cancelled",
					w.err)
			}
			e.Fatalf("a Lock that was cancelled returned: %v; want an error that wraps Canceled",
				w.err)
		}
	}
	left, slow := 0, 0
	var longest time.Duration
	for i, g := range gs {
		if nexts[i] == nil {
			free[i] = time.Now()
			nexts[i] = e.wait(e.c, g.name)
		}
	}
	for i := range gs {
		next := nexts[i].got()
		took := nexts[i].at.Sub(free[i])
		e.soon("the next holder got a lock for which a waiting call had given up", took,
			e.fleet.Lease+e.prompt)
		if leavers[i].err != nil {
			left++
			longest = max(longest, took)
			if took > e.prompt {
				slow++
			}
		}
		e.unlock(next)
	}
	if slow > max(1, left/2) {
		e.unlucky("%d waiting calls gave up, and the next holders got %d of their locks late, after up to %v; want it within %v",
			left, slow, longest, e.prompt)
	}
}

func waitNoGhost(e *env)        { e.leave(true, false) }
func waitLeftAtHandover(e *env) { e.leave(true, true) }
func waitLeftAcquiring(e *env)  { e.leave(false, false) }
