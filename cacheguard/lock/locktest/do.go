package locktest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var doCases = []spec{
	{"do: returns what work does", dos, doReturns},
	{"do: panic and Goexit", dos, doExits},
	{"do: lost", dos, doLost},
	{"do: the context ends during the work", dos, doContextEnds},
	{"do: inside itself", reentrant, doInside},
}

func doReturns(e *env) {
	name := e.name()
	for _, want := range []error{nil, errors.New("the work failed")} {
		last := time.Now() // when the latest of Do's own steps began
		err := lock.Do(e.bounded(), e.a, name, func(ctx context.Context, held lock.Lock) error {
			e.isHeld(held)
			e.refused(e.b, held)
			last = time.Now()
			return want
		})
		took := time.Since(last)
		if errors.Is(err, lock.ErrLost) {
			e.unlucky("%v", err)
		}
		if !errors.Is(err, want) || want == nil && err != nil {
			e.unexpected(took, err, "Do returned %v for work that returned %v", err, want)
		}
		e.nextSoon(name)
	}
}

// nextSoon checks that another caller gets the lock soon after Do. It waits for the lock, because
// on a slow system the Unlock of Do may have got no answer.
func (e *env) nextSoon(name string) {
	e.Helper()
	began := time.Now()
	next := e.lock(e.b, name)
	e.soon("the next holder got the lock of Do", time.Since(began), e.prompt)
	e.unlock(next)
}

func doExits(e *env) {
	name := e.name()
	for how, exit := range map[string]func(){
		"a panic": func() { panic("of the work") }, "Goexit": runtime.Goexit,
	} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer func() { _ = recover() }()
			_ = lock.Do(e.bounded(), e.a, name, func(context.Context, lock.Lock) error {
				exit()
				return nil
			})
		}()
		e.happens("Do ends with "+how, over)
		e.nextSoon(name)
	}
}

func doLost(e *env) {
	e.needsSteal()
	failed := errors.New("the work failed")
	for _, own := range []error{nil, failed} {
		name, ran := e.name(), false
		began := time.Now()
		err := lock.Do(e.bounded(), e.a, name, func(ctx context.Context, held lock.Lock) error {
			ran = true
			e.fleet.Steal(name)
			e.happens("the context of Do's work ends when the lock is stolen", ctx.Done())
			if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) {
				e.Errorf("the context of Do's work ended with the cause: %v; want ErrLost", cause)
			}
			return own
		})
		if !ran {
			e.unexpected(time.Since(began), err, "Do returned %v without the work", err)
			continue
		}
		if !errors.Is(err, lock.ErrLost) || !errors.Is(err, own) && own != nil {
			e.Errorf("Do returned: %v; want ErrLost, and %v", err, own)
		}
		e.unlock(e.lock(e.b, name))
	}
}

func doContextEnds(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	name := e.name()
	err := lock.Do(ctx, e.a, name, func(ctx context.Context, held lock.Lock) error {
		cancel()
		e.pass(e.fleet.Lease / 20)
		e.refused(e.b, held)
		return nil
	})
	if errors.Is(err, lock.ErrLost) {
		e.unlucky("%v", err)
	}
	e.unlock(e.lock(e.b, name))
}

func doInside(e *env) {
	if !e.fleet.Reentrant {
		e.Skipf("the fleet's locks are not reentrant")
	}
	name, ran := e.name(), false
	var took time.Duration // by the longest part of the two Dos
	last := time.Now()
	part := func() { took, last = max(took, time.Since(last)), time.Now() }
	err := lock.Do(e.bounded(), e.a, name, func(ctx context.Context, outer lock.Lock) error {
		part()
		err := lock.Do(ctx, e.a, name, func(_ context.Context, inner lock.Lock) error {
			ran = inner.Token() == outer.Token()
			return nil
		})
		part()
		e.refused(e.b, outer)
		last = time.Now()
		return err
	})
	part()
	if errors.Is(err, lock.ErrLost) {
		e.unlucky("%v", err)
	}
	if err != nil || !ran {
		e.unexpected(took, err, "Do inside Do returned %v, and had the same lock: %v", err, ran)
	}
	e.unlock(e.try(e.b, name))
}
