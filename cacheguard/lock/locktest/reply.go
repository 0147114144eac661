package locktest

import (
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var replyCases = []spec{
	{"lost reply: TryLock", ghosts, replyTry},
	{"lost reply: Lock", ghosts, replyLock},
}

func replyTry(e *env)  { e.replyLost(e.a.TryLock) }
func replyLock(e *env) { e.replyLost(e.a.Lock) }

// replyLost: an acquisition whose reply was lost may try again or return an error. It leaves
// nothing behind for long.
func (e *env) replyLost(step acquire) {
	e.needsLoss()
	for range 3 {
		name := e.name()
		e.fleet.LoseReply()
		began := time.Now()
		held, err := e.ask(e.ctx, step, name)
		switch {
		case errors.Is(err, lock.ErrHeld):
			e.Fatalf("an acquisition whose reply was lost took its own lock for another holder's: %v",
				err)
		case err == nil:
			e.keep(held)
			e.refused(e.b, held)
			e.unlock(held)
			unlocked := time.Now()
			e.unlock(e.lock(e.b, name))
			e.soon("after Unlock, the next holder got a lock whose first reply was lost",
				time.Since(unlocked), e.prompt)
			continue
		}
		e.Logf("the reply was lost: %v", err)
		failed := time.Now()
		next := e.lock(e.b, name)
		took := time.Since(failed)
		e.Logf("the next holder got the lock %v after the error, which took %v", took,
			failed.Sub(began))
		e.soon("the next holder got a lock of which no holder knew", took,
			2*e.fleet.Lease+e.fleet.Poll+time.Second)
		e.pass(e.fleet.Lease / 2) // late requests could do harm now
		e.refused(e.c, next)
		e.unlock(next)
	}
}

func (e *env) needsLoss() {
	e.Helper()
	if e.fleet.LoseReply == nil {
		e.Skipf("the fleet doesn't say how to lose a reply")
	}
}
