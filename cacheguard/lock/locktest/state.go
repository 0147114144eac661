package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var stateCases = []spec{
	{"state: while held and after Unlock", states, stateAfterUnlock},
	{"state: held for several leases", renewed, stateRenewed},
	{"state: the context of its acquisition ends", contexts, stateContextEnds},
	{"state: until", untils, stateUntil},
	{"state: lost", states, stateLost},
	{"state: lost, under a Context", states, stateLostContext},
	{"state: a Context without a loss", states, stateContext},
}

func stateAfterUnlock(e *env) {
	name := e.name()
	for step, acquire := range map[string]func(lock.Locker, string) lock.Lock{
		"Lock": e.lock, "TryLock": e.try,
	} {
		held := acquire(e.a, name)
		if held.Name() != name {
			e.Errorf("what %s of %q returned has the name %q", step, name, held.Name())
		}
		e.unlock(held)
		if err := held.Err(); !errors.Is(err, lock.ErrNotHeld) {
			e.Errorf("Err after Unlock: %v; want ErrNotHeld", err)
		}
		select {
		case <-held.Lost():
			e.Errorf("Lost is closed by Unlock")
		default:
		}
	}
}

// stateUntil: a holder never loses its lock before Until.
func stateUntil(e *env) {
	name := e.name()
	held := e.lock(e.a, name)
	// within checks a lock that was granted or renewed before now.
	within := func() time.Time {
		e.Helper()
		until := held.Until()
		now := time.Now()
		e.isHeld(held)
		switch {
		case until.IsZero():
			e.Skipf("the lock has no end of its own")
		case until.After(now.Add(e.fleet.Lease)):
			e.Errorf("the lock ends in %v, if nothing renews it; a lease is %v", until.Sub(now),
				e.fleet.Lease)
		}
		return until
	}
	first := within()
	for began := time.Now(); !within().After(first); e.pass(e.fleet.Lease / 50) {
		if time.Since(began) > e.limit {
			e.Fatalf("after %v of holding the lock, Until is still that of the question",
				time.Since(began))
		}
	}
	e.unlock(held)
	held = e.lock(e.a, name)
	e.Logf("it ends %v after it was had", time.Until(within()))
	e.unlock(held)
}

func stateRenewed(e *env) {
	held := e.lock(e.a, e.name())
	w := e.wait(e.c, held.Name())
	for range 8 {
		e.pass(e.fleet.Lease / 2)
		w.waits(held)
		e.refused(e.b, held)
	}
	e.unlock(held)
	e.unlock(w.got())
}

func stateContextEnds(e *env) {
	ctx, cancel := context.WithTimeout(e.ctx, e.limit)
	name, tried := e.name(), e.name()
	locks := []lock.Lock{e.lockIn(ctx, e.a, name), e.tryIn(ctx, e.a, tried)}
	cancel()
	for range 4 {
		e.pass(e.fleet.Lease / 2)
		for _, held := range locks {
			e.refused(e.b, held)
		}
	}
	for _, held := range locks {
		e.unlock(held)
	}
}

func stateLost(e *env) {
	e.needsSteal()
	held := e.lock(e.a, e.name())
	e.isHeld(held)
	began := time.Now()
	e.fleet.Steal(held.Name())
	e.isLost(held)
	took := time.Since(began)
	e.Logf("Lost was closed %v after the lock was stolen", took)
	e.soon("Lost is closed", took, 2*e.fleet.Lease)
	e.saysLost(held)
	if err := held.Err(); err == nil {
		e.Errorf("Err is nil after the Unlock of a lock that was lost")
	}
	e.unlock(e.lock(e.b, held.Name()))
}

func stateLostContext(e *env) {
	e.needsSteal()
	held := e.lock(e.a, e.name())
	under, cancel := lock.Context(e.ctx, held)
	defer cancel()
	if err := under.Err(); err != nil {
		e.isHeld(held)
		e.Fatalf("the Context of a lock that is held has ended: %v", err)
	}
	e.fleet.Steal(held.Name())
	e.happens("the Context of a lock that was stolen ends", under.Done())
	if cause := context.Cause(under); !errors.Is(cause, lock.ErrLost) {
		e.Errorf("the Context of a lock that was lost ended with the cause: %v; want ErrLost",
			cause)
	}
	e.saysLost(held)
}

// stateContext: a Context ends with its parent and with its cancel, and doesn't end the lock.
func stateContext(e *env) {
	held := e.lock(e.a, e.name())
	parent, end := context.WithCancel(e.ctx)
	under, cancel := lock.Context(parent, held)
	defer cancel()
	end()
	e.happens("a Context ends with its parent", under.Done())
	if cause := context.Cause(under); !errors.Is(cause, context.Canceled) {
		e.isHeld(held)
		e.Errorf("the Context ended with the cause: %v; want Canceled", cause)
	}
	e.refused(e.b, held)
	e.unlock(held)
}
