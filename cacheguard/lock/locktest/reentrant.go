package locktest

import (
	"context"
	"errors"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var reentrantCases = []spec{
	{"reentrant: with the Context, at once", reentrant, reentrantAtOnce},
	{"reentrant: the last Unlock counts", reentrant, reentrantLast},
	{"reentrant: for nobody else", reentrant, reentrantOthers},
	{"reentrant: after a loss", reentrant, reentrantLost},
	{"reentrant: after Unlock", reentrant, reentrantAfter},
}

// under acquires the lock with this name. It returns the lock and a context that lock.Context made.
// It skips the test if the fleet's locks aren't reentrant.
func (e *env) under(l lock.Locker, name string) (context.Context, lock.Lock) {
	e.Helper()
	if !e.fleet.Reentrant {
		e.Skipf("the fleet's locks are not reentrant")
	}
	held := e.lock(l, name)
	ctx, cancel := lock.Context(e.ctx, held)
	e.atEnd(cancel)
	return ctx, held
}

func reentrantAtOnce(e *env) {
	ctx, held := e.under(e.a, e.name())
	for _, again := range []lock.Lock{
		e.lockIn(ctx, e.a, held.Name()), e.tryIn(ctx, e.a, held.Name()),
	} {
		if again.Token() != held.Token() {
			e.Errorf("the lock with the token %d has the token %d when it is had again",
				held.Token(), again.Token())
		}
		if again.Name() != held.Name() {
			e.Errorf("the lock of %q has the name %q when it is had again", held.Name(),
				again.Name())
		}
		// Lock once more, with a Context of the second hold that isn't derived from the first
		// hold's Context.
		deeper, cancel := lock.Context(e.ctx, again)
		e.unlock(e.lockIn(deeper, e.a, held.Name()))
		cancel()
		e.unlock(again)
		e.refused(e.b, held)
	}
	e.unlock(held)
	e.unlock(e.try(e.b, held.Name()))
}

func reentrantLast(e *env) {
	for _, first := range []bool{true, false} { // whether the first hold is given back first
		ctx, outer := e.under(e.a, e.name())
		inner := e.lockIn(ctx, e.a, outer.Name())
		if first {
			outer, inner = inner, outer
		}
		e.unlock(inner)
		e.unlock(inner) // the second Unlock has no effect
		if err := inner.Err(); !errors.Is(err, lock.ErrNotHeld) {
			e.Errorf("Err of a hold after its Unlock: %v; want ErrNotHeld", err)
		}
		e.pass(e.fleet.Lease * 3 / 2) // the lock is renewed as before
		e.refused(e.b, outer)
		e.unlock(outer)
		e.unlock(e.try(e.b, outer.Name()))
	}
}

func reentrantOthers(e *env) {
	ctx, held := e.under(e.a, e.name())
	e.refused(e.a, held)        // the same locker without the Context
	e.refusedIn(ctx, e.b, held) // another locker with the Context
	w := e.wait(e.a, held.Name())
	other := e.tryIn(ctx, e.a, held.Name()+"2") // another name
	e.refusedIn(ctx, e.b, other)
	e.pass(e.fleet.Lease / 10)
	w.waits(held)
	e.unlock(other)
	e.unlock(held)
	e.unlock(w.got())
}

func reentrantLost(e *env) {
	e.needsSteal()
	ctx, held := e.under(e.a, e.name())
	inner := e.lockIn(ctx, e.a, held.Name())
	e.fleet.Steal(held.Name())
	e.isLost(held)
	e.isLost(inner)
	for what, step := range map[string]acquire{"Lock": e.a.Lock, "TryLock": e.a.TryLock} {
		for _, ctx := range []context.Context{ctx, context.WithoutCancel(ctx)} {
			again, err := e.ask(ctx, step, held.Name())
			if err == nil {
				e.keep(again)
			}
			if !errors.Is(err, lock.ErrLost) {
				e.Errorf("%s with the Context of a lock that was lost: %v; want ErrLost", what, err)
			}
		}
	}
	e.saysLost(inner)
	e.saysLost(held)
	e.unlock(e.lock(e.b, held.Name()))
}

// reentrantAfter: after the lock was given back, its Context no longer carries the lock, and its
// name is free for every caller.
func reentrantAfter(e *env) {
	ctx, held := e.under(e.a, e.name())
	e.unlock(held)
	next := e.tryIn(ctx, e.a, held.Name())
	if e.fleet.Fenced && next.Token() <= held.Token() {
		e.Errorf("a new lock has the token %d after the token %d", next.Token(), held.Token())
	}
	e.unlock(next)
	other := e.lock(e.b, held.Name())
	e.refusedIn(ctx, e.a, other)
	e.unlock(other)
}
