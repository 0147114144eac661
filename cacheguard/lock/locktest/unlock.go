package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var unlockCases = []spec{
	{"unlock: again", unlocks, unlockAgain},
	{"unlock: again, while another holds", owners, unlockAgainOther},
	{"unlock: many at once", unlocks, unlockTogether},
	{"unlock: with a context that has ended", unlocks, unlockEnded},
	{"unlock: by who lost it", owners, unlockAfterSteal},
	{"unlock: nobody has it any more", owners, unlockOfNothing},
}

func unlockAgain(e *env) {
	held := e.lock(e.a, e.name())
	for range 3 {
		e.unlock(held)
	}
	e.unlock(e.try(e.b, held.Name()))
	e.unlock(held)
}

func unlockAgainOther(e *env) {
	held := e.lock(e.a, e.name())
	e.unlock(held)
	// a later hold of the same locker is a different hold, too.
	for _, l := range []lock.Locker{e.b, e.a} {
		next := e.lock(l, held.Name())
		e.unlock(held)
		e.refused(e.c, next)
		e.unlock(next)
	}
}

func unlockTogether(e *env) {
	const callers = 10
	held := e.lock(e.a, e.name())
	answers := make([]error, callers)
	all := e.crew()
	for i := range callers {
		all.do(func() {
			ctx, cancel := context.WithTimeout(e.ctx, e.limit)
			defer cancel()
			answers[i] = held.Unlock(ctx)
		})
	}
	all.end()
	for _, err := range answers {
		if (err == nil) != (answers[0] == nil) {
			e.Fatalf("one of several calls of Unlock at once returned %v, and another one %v",
				answers[0], err)
		}
	}
	e.unlock(held) // returns nil, as it did for the callers above
	e.unlock(e.try(e.b, held.Name()))
}

func unlockEnded(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	held := e.lockIn(ctx, e.a, e.name())
	w := e.wait(e.b, held.Name())
	e.pass(e.fleet.Lease / 10)
	w.waits(held)
	cancel()
	began := time.Now()
	if err, _ := e.unlocked(ctx, held); errors.Is(err, lock.ErrLost) {
		e.unlucky("%q was lost", held.Name())
	} else if err != nil && !errors.Is(err, context.Canceled) {
		e.Errorf("Unlock with a context that has ended: %v; want nil or an error that wraps Canceled",
			err)
	}
	next := w.got()
	e.soon("the next holder got a lock that was unlocked with an ended context", w.at.Sub(began),
		e.prompt)
	e.unlock(held) // now with a context that lets Unlock wait for the reply
	e.unlock(next)
}

// unlockAfterSteal: a holder that lost its lock does no harm to the next holder.
func unlockAfterSteal(e *env) {
	e.needsSteal()
	// a later hold of the same locker is a different hold, too.
	for _, l := range []lock.Locker{e.b, e.a} {
		held := e.lock(e.a, e.name())
		e.fleet.Steal(held.Name())
		next := e.lock(l, held.Name())
		e.saysLost(held)
		e.refused(e.c, next)
		e.saysLost(held)
		e.pass(e.fleet.Lease * 3 / 2)
		e.refused(e.c, next)
		e.unlock(next)
	}
}

func unlockOfNothing(e *env) {
	e.needsSteal()
	held := e.lock(e.a, e.name())
	e.fleet.Steal(held.Name())
	e.saysLost(held)
	e.saysLost(held)
	e.unlock(e.lock(e.b, held.Name()))
}

func (e *env) needsSteal() {
	e.Helper()
	if e.fleet.Steal == nil {
		e.Skipf("the fleet doesn't say how to steal a lock")
	}
}
