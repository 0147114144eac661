package locktest

import (
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

var cutCases = []spec{
	{"cut: the holder knows before another has the lock", exclusive, cutHolder},
	{"cut: acquisitions return an error", trouble, cutAcquires},
	{"cut: unlock returns", trouble, cutUnlock},
	{"cut: one who waits stays", trouble, cutWaiter},
}

// cut cuts Lockers[0] off until heal is called. heal is also called at the end of the case.
func (e *env) cut() (heal func()) {
	e.Helper()
	if e.fleet.Cut == nil {
		e.Skipf("the fleet doesn't say how to cut a locker off")
	}
	mend, healed := e.fleet.Cut(), false
	heal = func() {
		if !healed {
			healed = true
			mend()
		}
	}
	e.atEnd(heal)
	return heal
}

// recovers waits until Lockers[0] works again.
func (e *env) recovers() {
	e.Helper()
	name := e.name()
	for began := time.Now(); ; e.pass(10 * time.Millisecond) {
		held, err := e.ask(e.ctx, e.a.TryLock, name)
		if err == nil {
			giveBack(held, e.limit)
			e.Logf("the locker works again %v after the cut was healed", time.Since(began))
			return
		}
		if time.Since(began) > e.limit {
			// It is no bad luck if the system is quick for another locker.
			if other := e.asked(e.ctx, e.c.TryLock, e.name()); other.err == nil {
				giveBack(other.held, e.limit)
				if other.at.Sub(other.began) < e.fleet.Lease/16 {
					e.Fatalf("the locker does not work again within %v: %v", e.limit, err)
				}
			}
			e.unlucky("the locker does not work again within %v: %v", e.limit, err)
		}
	}
}

func cutHolder(e *env) {
	name, since := e.name(), time.Now()
	held := e.lock(e.a, name)
	w := e.wait(e.b, name)
	e.pass(e.fleet.Lease / 10)
	w.waits(held)
	began := time.Now()
	heal := e.cut()
	e.happens("the next holder gets the lock of a holder that is cut off", w.over)
	wallclock.CatchUp(since)
	known := held.Err() // read this before anything else
	next := w.got()
	took := w.at.Sub(began)
	if !errors.Is(known, lock.ErrLost) {
		e.Errorf("another has the lock, and Err of the holder that is cut off is: %v; want ErrLost",
			known)
	}
	e.isLost(held)
	e.Logf("the next holder got the lock of a holder that was cut off: after %v", took)
	e.soon("the next holder got the lock of a holder that was cut off", took,
		2*e.fleet.Lease+e.fleet.Poll+time.Second)
	heal()
	e.recovers()
	e.saysLost(held)
	e.pass(e.fleet.Lease * 3 / 2) // late requests could do harm now
	e.refused(e.c, next)
	e.refused(e.a, next)
	e.unlock(next)
}

func cutAcquires(e *env) {
	e.unlock(e.lock(e.a, e.name()))
	heal := e.cut()
	name := e.name()
	for what, step := range map[string]acquire{"Lock": e.a.Lock, "TryLock": e.a.TryLock} {
		began := time.Now()
		held, err := e.ask(e.ctx, step, name)
		took := time.Since(began)
		switch {
		case err == nil:
			e.keep(held)
			e.Errorf("%s while cut off has the lock", what)
		case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrClosed),
			errors.Is(err, lock.ErrLost), took >= e.limit:
			e.Errorf("%s while cut off: %v after %v; want an error of the system", what, err, took)
		}
	}
	heal()
	e.recovers()
	e.unlock(e.lock(e.b, name))
}

func cutUnlock(e *env) {
	held := e.lock(e.a, e.name())
	heal := e.cut()
	switch err, late := e.unlocked(e.ctx, held); {
	case err == nil:
		e.Errorf("Unlock while cut off returns nil")
	case late:
		e.Errorf("Unlock while cut off returns only with its context: %v", err)
	}
	if err := held.Err(); err == nil {
		e.Errorf("Err is nil after Unlock")
	}
	e.unlock(e.lock(e.b, held.Name())) // has to wait until the lease is over
	heal()
	e.recovers()
}

// cutWaiter: the holder unlocks while a waiting call is cut off, so no message reaches that call.
func cutWaiter(e *env) {
	held := e.lock(e.b, e.name())
	w := e.wait(e.a, held.Name())
	e.pass(e.fleet.Lease / 5)
	w.waits(held)
	began := time.Now()
	heal := e.cut()
	e.unlock(held)
	e.pass(e.fleet.Lease / 5)
	heal()
	// After a long cut the waiting call may give up.
	if cut := time.Since(began); cut > e.fleet.Lease*3/5 {
		e.unlucky("the machine took %v for a short cut", cut)
	}
	got := w.got()
	e.Logf("the waiting call got the lock %v after the cut", time.Since(began))
	e.refused(e.c, got)
	e.unlock(got)
}
