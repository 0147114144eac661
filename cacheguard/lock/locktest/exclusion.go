package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
)

var exclusionCases = []spec{
	{"exclusion: under contention", exclusive, exclusionContended},
	{"exclusion: many try at once", exclusive, exclusionTryAtOnce},
	{"exclusion: many wait at once", exclusive, exclusionWaitAtOnce},
}

// guard plays the role of the protected resource. It detects two holders at the same time, without
// a clock. If a holder entered earlier, is still inside and has not lost its lock, it has held the
// lock all the time.
type guard struct {
	fenced bool

	mu      sync.Mutex // guards the fields below
	inside  map[lock.Lock]bool
	entries int
	at      time.Time // of the last entry
	last    int64     // the last token
	lost    int       // the number of holders that had lost their lock when they entered
	wrong   []string
}

func newGuard(fenced bool) *guard {
	return &guard{fenced: fenced, inside: make(map[lock.Lock]bool)}
}

func (g *guard) enter(held lock.Lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries++
	g.at = time.Now()
	if held.Err() != nil { // possible if the machine was stopped for a while
		g.lost++
		return
	}
	for other := range g.inside {
		if other.Err() == nil {
			g.wrong = append(g.wrong,
				fmt.Sprintf("two are inside at once, with the tokens %d and %d", other.Token(),
					held.Token()))
		}
	}
	if g.fenced && held.Token() <= g.last {
		g.wrong = append(g.wrong, fmt.Sprintf("token %d came after token %d", held.Token(), g.last))
	}
	g.last = max(g.last, held.Token())
	g.inside[held] = true
}

func (g *guard) leave(held lock.Lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, held)
}

func (g *guard) entered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entries
}

// judge reports the violations. It is called when all holders have left.
func (g *guard) judge(e *env) {
	e.Helper()
	for i, w := range g.wrong {
		if i == 5 {
			e.Errorf("and %d times more", len(g.wrong)-i)
			break
		}
		e.Errorf("%s", w)
	}
}

func exclusionContended(e *env) {
	const (
		enough  = 120 // entries
		few     = 10  // entries that are enough if the system is slow
		each    = 4   // goroutines of one locker
		forTime = 3 * time.Second
	)
	name, g := e.name(), newGuard(e.fleet.Fenced)
	began := time.Now()
	over := func() bool {
		n, took := g.entered(), time.Since(began)
		return n >= enough || took > forTime && (n >= few || took > e.limit)
	}
	all := e.crew()
	failed := make(chan error, each*len(e.fleet.Lockers))
	for _, l := range e.fleet.Lockers {
		for range each {
			all.do(func() {
				for !over() {
					if err := e.enterOnce(l, name, g, entry(rand.IntN(int(entries)))); err != nil {
						failed <- err
						return
					}
				}
			})
		}
	}
	all.end()
	g.judge(e)
	e.Logf("%d entries in %v, %d of them lost", g.entries, time.Since(began), g.lost)
	close(failed)
	e.noneFailed(failed, g.at.Before(began.Add(e.limit/2)))
	if g.entries < few {
		e.unlucky("only %d entries", g.entries)
	}
}

// noneFailed checks the errors of enterOnce. It is no bad luck if somebody waits for the whole time
// limit, and nobody enters in the second half of it.
func (e *env) noneFailed(failed <-chan error, idle bool) {
	e.Helper()
	for err := range failed {
		if errors.Is(err, lock.ErrHeld) || idle && errors.Is(err, errNever) {
			e.Fatalf("one of those who wait: %v", err)
		}
		if err != nil {
			e.unlucky("one of those who wait: %v", err)
		}
	}
}

var errNever = errors.New("did not get the lock")

// entry is a way to enter.
type entry int

const (
	entersByLock entry = iota
	entersByTry
	leavesEarly // while it waits, or when it gets the lock
	entries
)

// enterOnce acquires the lock in the given way, enters the guard, and gives the lock back. If
// TryLock returns ErrHeld, enterOnce returns nil.
func (e *env) enterOnce(l lock.Locker, name string, g *guard, how entry) error {
	limit, step := e.limit, l.Lock
	switch how {
	case leavesEarly:
		limit = time.Duration(rand.IntN(3000)) * time.Microsecond
	case entersByTry:
		step = l.TryLock
	}
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	held, err := step(ctx, name)
	switch {
	case how == leavesEarly && errors.Is(err, context.DeadlineExceeded), how == entersByTry &&
		errors.Is(err, lock.ErrHeld):
		e.pass(time.Duration(rand.IntN(500)) * time.Microsecond)
		return nil
	case err != nil && ctx.Err() != nil && how != leavesEarly:
		return fmt.Errorf("%w within %v: %w", errNever, limit, err)
	case err != nil:
		return err
	}
	g.enter(held)
	e.pass(time.Duration(rand.IntN(300)) * time.Microsecond) // time for another holder to enter
	g.leave(held)
	ctx, cancel = context.WithTimeout(e.ctx, e.limit)
	defer cancel()
	if err := held.Unlock(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}

func exclusionTryAtOnce(e *env) {
	e.atOnce(e.limit, func(l lock.Locker) acquire { return l.TryLock })
}

func exclusionWaitAtOnce(e *env) {
	e.atOnce(e.fleet.Lease/20, func(l lock.Locker) acquire { return l.Lock })
}

// atOnce lets many callers acquire a lock at the same moment. None of them gives it back.
func (e *env) atOnce(limit time.Duration, step func(l lock.Locker) acquire) {
	const askers = 15
	for range 5 {
		name, g := e.name(), newGuard(e.fleet.Fenced)
		start := make(chan struct{})
		all := e.crew()
		got := make([]lock.Lock, askers)
		for i := range askers {
			l := e.fleet.Lockers[i%len(e.fleet.Lockers)]
			all.do(func() {
				<-start
				ctx, cancel := context.WithTimeout(e.ctx, limit)
				defer cancel()
				if held, err := step(l)(ctx, name); err == nil {
					g.enter(held)
					got[i] = held
				}
			})
		}
		close(start)
		all.end()
		g.judge(e)
		for _, held := range got {
			if held != nil {
				giveBack(held, e.limit)
			}
		}
	}
}
