package locktest

import (
	"errors"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var takeCases = []spec{
	{"continue: a lock is handed over", continues, continueHandsOver},
	{"continue: by a token that has none", continues, continueByOtherTokens},
	{"continue: two at once", continues, continueTwice},
	{"seize: from a holder", seizes, seizeFromHolder},
	{"seize: what nobody has", seizes, seizeFree},
}

func continueHandsOver(e *env) {
	b := e.continuer(e.b)
	e.goesToAnother("Continue", func(first lock.Lock) (lock.Lock, error) {
		return b.Continue(e.bounded(), first.Name(), first.Token())
	})
}

func seizeFromHolder(e *env) {
	b := e.seizer(e.b)
	e.goesToAnother("SeizeUnsafely", func(first lock.Lock) (lock.Lock, error) {
		return b.SeizeUnsafely(e.bounded(), first.Name())
	})
}

// goesToAnother: a lock goes from one process to another without being free in between, and waiting
// calls go on waiting. The first holder learns of its loss at its next renewal, and does no harm
// after it.
func (e *env) goesToAnother(how string, take func(first lock.Lock) (lock.Lock, error)) {
	for range 3 {
		name := e.name()
		first := e.lock(e.a, name)
		w := e.wait(e.c, name)
		next := e.take(how, name, func() (lock.Lock, error) { return take(first) })
		w.waits(next)
		if e.fleet.Fenced && next.Token() <= first.Token() {
			e.Errorf("%s of the lock with the token %d gave the token %d: what they write to can't tell who is late",
				how, first.Token(), next.Token())
		}
		e.isLost(first)
		e.saysLost(first)
		e.pass(e.fleet.Lease * 3 / 2) // the lock is renewed, and late requests could do harm
		w.waits(next)
		e.isHeld(next)
		e.unlock(next)
		e.unlock(w.got())
	}
}

// continueByOtherTokens: a token continues only the lock of its holder, and no lock that has ended.
func continueByOtherTokens(e *env) {
	b, name := e.continuer(e.b), e.name()
	refused := func(what string, token int64) {
		e.Helper()
		held, err := b.Continue(e.bounded(), name, token)
		if err == nil {
			e.keep(held)
			e.Fatalf("Continue with %s returned a lock", what)
		}
		if !errors.Is(err, lock.ErrLost) {
			e.unlucky("Continue with %s: %v; want ErrLost", what, err)
		}
	}
	refused("a token of nobody", 1)
	first := e.lock(e.a, name)
	for _, d := range []int64{-first.Token(), -1, 1, 10 * first.Token()} {
		refused("another token", first.Token()+d)
	}
	e.isHeld(first)
	e.unlock(first)
	refused("the token of a lock that was given back", first.Token())
	second := e.lock(e.c, name)
	refused("the token of the holder before", first.Token())
	e.isHeld(second)
	e.unlock(second)
}

// continueTwice: if several callers continue the same lock at once, one of them gets it.
func continueTwice(e *env) {
	for range 5 {
		name := e.name()
		first := e.lock(e.a, name)
		var mu sync.Mutex // guards got
		var got []lock.Lock
		c, ctx := e.crew(), e.bounded()
		for _, l := range []lock.Locker{e.b, e.c, e.b, e.c} {
			by := e.continuer(l)
			c.do(func() {
				held, err := by.Continue(ctx, name, first.Token())
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, held)
				}
			})
		}
		c.end()
		for _, held := range got {
			e.keep(held)
		}
		if len(got) > 1 {
			e.Fatalf("%d have continued one lock", len(got))
		}
		if len(got) == 0 {
			e.isHeld(first)
			e.unlucky("nobody has continued a lock that is held")
		}
		e.isLost(first)
		e.unlock(got[0])
	}
}

func seizeFree(e *env) {
	b, name := e.seizer(e.b), e.name()
	for range 3 {
		held := e.take("SeizeUnsafely", name, func() (lock.Lock, error) {
			return b.SeizeUnsafely(e.bounded(), name)
		})
		e.refused(e.a, held)
		e.unlock(held)
		e.unlock(e.lock(e.a, name))
	}
}

// take returns a lock that was taken over.
func (e *env) take(how, name string, step func() (lock.Lock, error)) lock.Lock {
	e.Helper()
	began := time.Now()
	held, err := step()
	if err != nil {
		e.unlucky("%s of %q, after %v: %v", how, name, time.Since(began), err)
	}
	e.isHeld(e.keep(held))
	return held
}

func (e *env) continuer(l lock.Locker) lock.Continuer {
	e.Helper()
	c, ok := l.(lock.Continuer)
	if !ok {
		e.Skipf("the locker can't continue a lock: it is no lock.Continuer")
	}
	return c
}

func (e *env) seizer(l lock.Locker) lock.Seizer {
	e.Helper()
	s, ok := l.(lock.Seizer)
	if !ok {
		e.Skipf("the locker can't take a lock by force: it is no lock.Seizer")
	}
	return s
}
