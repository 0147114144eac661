package locktest

import (
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

var processCases = []spec{
	{"process: one after another", exclusive, processTurns},
	{"process: the holder is killed", crashes, processKillHolder},
	{"process: one who waits is killed", crashes, processKillWaiter},
	{"process: the holder stands still", crashes, processStop},
	{"process: those who wait stand still as the lock is given back", crashes, standWaiting},
	{"process: those who acquire stand still", crashes, standAcquiring},
	{"process: those who hold stand still, for however long", crashes, standHolding},
	{"process: those who unlock stand still", crashes, standUnlocking},
	{"process: those who continue locks stand still", crashes, standContinuing},
	{"process: those who seize locks stand still", crashes, standSeizing},
	{"process: those who lock several names stand still", crashes, standLockingAll},
}

func processTurns(e *env) {
	p, name := e.start(), e.name()
	seen := larger{e: e}
	for range 3 {
		held := e.lock(e.a, name)
		seen.next(held.Token())
		if r := p.done(p.do(order{Do: doTry, Name: name, Wait: e.limit})); r.Err == "" {
			e.isHeld(held)
			e.Fatalf("two processes have the lock of %q", name)
		} else if !r.is(lock.ErrHeld) {
			e.unlucky("TryLock in another process: %s; want ErrHeld", r.Err)
		}
		hold := p.do(order{Do: doLock, Name: name, Wait: e.limit})
		e.pass(e.fleet.Lease / 10)
		e.isHeld(held)
		e.unlock(held)
		seen.next(p.acquired(hold))
		if got, err := e.ask(e.ctx, e.b.TryLock, name); err == nil {
			e.keep(got)
			p.holds(hold)
			e.Fatalf("two processes have the lock of %q", name)
		}
		p.unlock(hold)
	}
}

func processKillHolder(e *env) {
	p, name := e.start(), e.name()
	_, token := p.lock(name)
	seen := larger{e: e}
	seen.next(token)
	first, second := e.wait(e.b, name), e.wait(e.c, name)
	e.pass(e.fleet.Lease / 2) // the lock is renewed once or twice
	began := time.Now()
	p.kill()
	first, second = e.first(first, second)
	held := first.got()
	took := first.at.Sub(began)
	e.Logf("the next holder got the lock of a killed holder: after %v", took)
	e.soon("the next holder got the lock of a killed holder", took,
		2*e.fleet.Lease+e.fleet.Poll+time.Second)
	seen.next(held.Token())
	second.waits(held)
	e.unlock(held)
	next := second.got()
	seen.next(next.Token())
	e.unlock(next)
}

func processKillWaiter(e *env) {
	p, name := e.start(), e.name()
	held := e.lock(e.a, name)
	p.do(order{Do: doLock, Name: name, Wait: e.limit})
	e.pass(e.fleet.Lease/2 + e.fleet.Poll) // the process waits for the lock
	w := e.wait(e.b, name)
	e.pass(e.fleet.Lease / 10)
	p.kill()
	began := time.Now()
	w.waits(held)
	e.unlock(held)
	next := w.got()
	took := w.at.Sub(began)
	e.Logf("the call behind a killed waiting process got the lock: after %v", took)
	e.soon("the call behind a killed waiting process got the lock", took,
		2*e.fleet.Lease+e.fleet.Poll+time.Second)
	e.refused(e.c, next)
	e.unlock(next)
}

// processStop: a process is stopped for longer than its lease. When it goes on, it first asks
// whether it still has the lock. The answer must be that it doesn't, although the process has had
// no time to learn of the loss.
func processStop(e *env) {
	p, name, since := e.start(), e.name(), time.Now()
	hold, token := p.lock(name)
	w := e.wait(e.b, name)
	e.pass(e.fleet.Lease / 2)
	began := time.Now()
	p.stand()
	next := w.got()
	wallclock.CatchUp(since)
	e.Logf("the next holder got the lock of a holder that stood still: after %v", w.at.Sub(began))
	if e.fleet.Fenced && token >= next.Token() {
		e.Errorf("the holder that stood still has the token %d, and the next one %d; want a larger one, by which a resource refuses the late holder",
			token, next.Token())
	}
	asked := p.do(order{Do: doErr, Hold: hold})
	resume(p.cmd.Process)
	if r := p.done(asked); !r.is(lock.ErrLost) {
		e.isHeld(next)
		e.Errorf("another has the lock, and Err of a holder that stood still is: %q; want ErrLost",
			r.Err)
	}
	p.await("Lost is closed in a process that stood still", func(r report) bool {
		return r.ID == hold && r.Kind == reportLost
	})
	if r := p.done(p.do(order{Do: doUnlock, Hold: hold})); !r.is(lock.ErrLost) {
		e.Errorf("Unlock of a holder that stood still: %q; want ErrLost", r.Err)
	}
	e.pass(e.fleet.Lease / 2) // late requests could do harm now
	e.refused(e.c, next)
	e.unlock(next)
}
