package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var closeCases = []spec{
	{"close: waits end, locks are lost", closes, closeEnds},
	{"close: others go on", closes, closeOthers},
	{"close: in the middle of everything", closes, closeTogether},
}

// shut closes Lockers[0] and returns when Close has returned.
func (e *env) shut() {
	e.Helper()
	var end func() error
	switch l := e.a.(type) {
	case interface{ Close() error }:
		end = l.Close
	case interface{ Close() }:
		end = func() error { l.Close(); return nil }
	default:
		e.Skipf("the fleet's lockers have no Close")
	}
	e.shutDown = true
	closed := make(chan struct{})
	var err error
	go func() {
		defer close(closed)
		err = end()
	}()
	e.happens("Close returns", closed)
	if err != nil {
		e.Errorf("Close: %v", err)
	}
}

// canClose skips a case before it harms a locker that can't be closed.
func (e *env) canClose() {
	switch e.a.(type) {
	case interface{ Close() error }, interface{ Close() }:
	default:
		e.Skipf("the fleet's lockers have no Close")
	}
}

func closeEnds(e *env) {
	e.canClose()
	taken := e.lock(e.b, e.name())
	held := e.lock(e.a, e.name())
	w := e.wait(e.a, taken.Name())
	e.pass(e.fleet.Lease / 10)
	w.waits(taken)
	closing := time.Now()
	e.shut()
	if err := w.returned(); !errors.Is(err, lock.ErrClosed) {
		if w.at.Before(closing) {
			e.unexpected(w.at.Sub(w.began), err, "a Lock that waited returned: %v, before Close",
				err)
		}
		e.Errorf("a Lock that waited returned: %v; want ErrClosed", err)
	}
	if err := held.Err(); !errors.Is(err, lock.ErrLost) {
		e.Errorf("Err of a lock after Close of its locker: %v; want ErrLost", err)
	}
	e.isLost(held)
	for what, step := range map[string]acquire{"Lock": e.a.Lock, "TryLock": e.a.TryLock} {
		for _, name := range []string{e.name(), held.Name(), taken.Name()} {
			got, err := e.ask(e.ctx, step, name)
			if err == nil {
				e.keep(got)
			}
			if !errors.Is(err, lock.ErrClosed) {
				e.Errorf("%s after Close: %v; want ErrClosed", what, err)
			}
		}
	}
	e.shut() // a second Close
	e.saysLost(held)
}

// closeOthers: the locks of a closed locker are free when its lease is over, and the locks of other
// lockers stay held.
func closeOthers(e *env) {
	e.canClose()
	taken := e.lock(e.b, e.name())
	held := e.lock(e.a, e.name())
	gone := e.wait(e.a, taken.Name())
	next := e.wait(e.c, held.Name())
	e.pass(e.fleet.Lease / 10)
	gone.waits(taken)
	next.waits(held)
	e.shut()
	got := next.got() // without an Unlock by the previous holder
	e.saysLost(held)
	e.refused(e.b, got)
	e.refused(e.c, taken)
	e.unlock(got)
	e.unlock(taken)
	e.unlock(e.lock(e.c, taken.Name())) // the call that waited for it has left no ghost
}

// failure is an error that an operation must not return.
type failure struct {
	took time.Duration // of the operation
	err  error
	what string // a format for the error
}

func closeTogether(e *env) {
	e.canClose()
	names := []string{e.name(), e.name(), e.name()}
	all := e.crew()
	busy := make(chan struct{}, 100)
	const callers = 12
	failed := make(chan failure, callers)
	for i := range callers {
		all.do(func() {
			for n := i; ; n++ {
				began := time.Now()
				held, err := e.a.Lock(e.ctx, names[n%len(names)])
				took := time.Since(began)
				if err != nil {
					if !errors.Is(err, lock.ErrClosed) {
						failed <- failure{
							took, err, "Lock of a locker that is being closed: %v; want ErrClosed",
						}
					}
					return
				}
				select {
				case busy <- struct{}{}:
				default:
				}
				ctx, cancel := context.WithTimeout(e.ctx, e.limit)
				began = time.Now()
				err = held.Unlock(ctx)
				took = time.Since(began)
				cancel()
				if err != nil && !errors.Is(err, lock.ErrLost) {
					failed <- failure{
						took, err,
						"Unlock while the locker is being closed: %v; want nil or ErrLost",
					}
					return
				}
			}
		})
	}
	judge := func() {
		close(failed)
		var slow []failure
		for f := range failed {
			if e.unanswered(f.took, f.err) {
				slow = append(slow, f)
			} else {
				e.Errorf(f.what, f.err)
			}
		}
		for _, f := range slow {
			e.unlucky(f.what, f.err)
		}
	}
	ended := all.over()
	for range 20 {
		select {
		case <-busy:
		case <-ended:
			judge()
			e.Fatalf("all Locks have ended before Close")
		}
	}
	e.shut()
	e.happens("those who lock and unlock see that it was closed", ended)
	judge()
	for _, name := range names {
		e.unlock(e.lock(e.b, name))
	}
}
