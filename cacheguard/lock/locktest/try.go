package locktest

import (
	"context"
	"errors"
	"time"
)

var tryCases = []spec{
	{"try: free", tries, tryFree},
	{"try: held", tries, tryHeld},
	{"try: held, at once", tries, tryAtOnce},
	{"try: with a context that has ended", contexts, tryEnded},
}

func tryFree(e *env) {
	name := e.name()
	for range 20 {
		for _, l := range e.fleet.Lockers {
			e.unlock(e.try(l, name))
		}
	}
}

func tryHeld(e *env) {
	held := e.try(e.a, e.name())
	for _, l := range e.fleet.Lockers { // including the holder's own locker
		e.refused(l, held)
	}
	e.unlock(held)
	e.unlock(e.try(e.b, held.Name()))
}

func tryAtOnce(e *env) {
	held := e.try(e.a, e.name())
	quickest := e.limit
	for range 10 {
		began := time.Now()
		e.refused(e.b, held)
		quickest = min(quickest, time.Since(began))
	}
	e.Logf("the quickest of 10 refusals took %v", quickest)
	e.soon("TryLock of a name that is held returned", quickest, e.fleet.Lease/2)
}

// tryEnded checks Lock, too.
func tryEnded(e *env) {
	cancelled, cancel := context.WithCancel(e.ctx)
	cancel()
	late, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer cancel()
	taken := e.lock(e.c, e.name())
	for _, name := range []string{e.name(), taken.Name()} {
		for _, ctx := range []context.Context{cancelled, late} {
			for what, step := range map[string]acquire{"Lock": e.a.Lock, "TryLock": e.a.TryLock} {
				held, err := e.ask(ctx, step, name)
				if err == nil {
					e.keep(held)
				}
				if !errors.Is(err, ctx.Err()) {
					e.Errorf("%s with a context that has ended returned: %v; want an error that wraps %v",
						what, err, ctx.Err())
				}
			}
		}
		if name != taken.Name() {
			e.unlock(e.try(e.b, name)) // the failed calls have requested nothing
		}
	}
	e.refused(e.b, taken)
}
