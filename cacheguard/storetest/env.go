package storetest

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/frame"
)

const (
	long  = time.Minute           // outlives any case
	short = 50 * time.Millisecond // is waited for
	slack = 15 * time.Millisecond // what a store may round a duration up by
	limit = 10 * time.Second      // for what must happen soon
)

// env is what a case works with: two processes, and a cache that nobody else uses.
type env struct {
	TB
	fleet   Fleet
	promise string
	ctx     context.Context
	a, b    cacheguard.Store
	cache   string
	ended   []func()
}

func newEnv(t TB, f Fleet, promise string) *env {
	return &env{
		TB: t, fleet: f, promise: promise,
		ctx: context.Background(), // every step returns in a time of its own
		a:   f.Stores[0], b: f.Stores[1],
		cache: "storetest-" + rand.Text(),
	}
}

// Errorf names the promise with the failure.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.TB.Errorf(format+"\n\tprotects "+e.promise, args...)
}

// Fatalf names the promise with the failure.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.TB.Fatalf(format+"\n\tprotects "+e.promise, args...)
}

// atEnd has do called when the case is over.
func (e *env) atEnd(do func()) { e.ended = append(e.ended, do) }

func (e *env) close() {
	for _, do := range e.ended {
		do()
	}
}

func (e *env) key(name string) cacheguard.Key { return cacheguard.Key{Cache: e.cache, Key: name} }

// token draws the token of a load.
func (e *env) token() (id cacheguard.ID) {
	rand.Read(id[:])
	return id
}

// frame is what a load with this token would store.
func (e *env) frame(load cacheguard.ID, body string) []byte {
	h := frame.Header{ID: load, Created: e.a.Now(), Soft: long}
	return frame.New(h, []byte(body))
}

// other is a number that isn't this grant's.
func other(g cacheguard.Grant) cacheguard.Grant {
	g.Number++
	return g
}

// pass lets d and a little more pass on the store's clock.
func (e *env) pass(d time.Duration) {
	d += slack
	if e.fleet.Advance != nil {
		e.fleet.Advance(d)
		return
	}
	<-time.After(d)
}

// eventually waits until ok.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for began := time.Now(); !ok(); {
		if time.Since(began) > limit {
			e.Fatalf("did not happen within %v: %s", limit, what)
		}
		<-time.After(time.Millisecond)
	}
}

// within has try find something that holds only for d. If it didn't although try was fast enough,
// that is a failure; if the machine was too slow to tell, try is asked again.
func (e *env) within(d time.Duration, try func(k cacheguard.Key) error) {
	e.Helper()
	for range 10 {
		began := time.Now()
		err := try(e.key("within " + rand.Text()))
		if err == nil {
			return
		}
		if time.Since(began) < d {
			e.Errorf("%v (tried for less than the %v)", err, d)
			return
		}
	}
	e.Logf("this machine is too slow to see what holds for %v", d)
}
