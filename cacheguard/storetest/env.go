package storetest

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

const (
	long  = 10 * time.Minute      // longer than any case runs
	short = 50 * time.Millisecond // short enough for a case to wait for it
	slack = 15 * time.Millisecond // the amount by which a store may round up a duration
	limit = 10 * time.Second      // the time limit for events that must happen soon
)

// env is the environment of a case: two processes, and a cache that no other case uses.
type env struct {
	TB
	fleet   Fleet
	promise string
	ctx     context.Context
	a, b    cacheguard.Store
	cache   string
	began   time.Time
	ended   []func()
}

func newEnv(t TB, f Fleet, promise string) *env {
	return &env{
		TB: t, fleet: f, promise: promise,
		ctx: context.Background(), // every step has a time limit of its own
		a:   f.Stores[0], b: f.Stores[1],
		cache: "storetest-" + rand.Text(), began: time.Now(),
	}
}

// Errorf reports a failure, with the promise that is broken.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.TB.Errorf(format+"\n\tprotects: "+e.promise, args...)
}

// Fatalf reports a failure, with the promise that is broken, and ends the case.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.TB.Fatalf(format+"\n\tprotects: "+e.promise, args...)
}

// atEnd registers do to be called when the case is over.
func (e *env) atEnd(do func()) { e.ended = append(e.ended, do) }

func (e *env) close() {
	for _, do := range e.ended {
		do()
	}
}

func (e *env) key(name string) cacheguard.Key { return cacheguard.Key{Cache: e.cache, Key: name} }

// token returns a random token for a load.
func (e *env) token() (id cacheguard.ID) {
	rand.Read(id[:])
	return id
}

// frame returns the frame that a load with this token would store.
func (e *env) frame(load cacheguard.ID, body string) []byte {
	h := frame.Header{ID: load, Created: e.a.Now(), Soft: long}
	return frame.New(h, []byte(body))
}

// other returns the grant with another number.
func other(g cacheguard.Grant) cacheguard.Grant {
	g.Number++
	return g
}

// pass waits until d and a little more have passed on the store's clock.
func (e *env) pass(d time.Duration) {
	d += slack
	if e.fleet.Advance != nil {
		e.fleet.Advance(d)
		return
	}
	wallclock.Pass(d)
}

// longest returns the most that may remain of d: if the machine's clock was set back, and the store
// uses this clock, as much more than d.
func (e *env) longest(d time.Duration) time.Duration {
	return d + slack - min(wallclock.SetSince(e.began), 0)
}

// eventually waits until ok returns true.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for began := time.Now(); !ok(); {
		if time.Since(began) > limit {
			e.Fatalf("did not happen within %v: %s", limit, what)
		}
		<-time.After(time.Millisecond)
	}
}

// within calls try, which must find a state that lasts only for d. If try fails although it took
// less than d, on the monotonic clock and on the machine's, the case fails. If the machine was too
// slow to tell, within calls try again.
func (e *env) within(d time.Duration, try func(k cacheguard.Key) error) {
	e.Helper()
	for range 10 {
		began := time.Now()
		err := try(e.key("within " + rand.Text()))
		if err == nil {
			return
		}
		if time.Since(began)+max(wallclock.SetSince(began), 0) < d {
			e.Errorf("%v (tried for less than the %v)", err, d)
			return
		}
	}
	e.Logf("this machine is too slow to see what holds for %v", d)
}
