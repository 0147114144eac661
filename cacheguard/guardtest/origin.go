package guardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Origin takes the place of the system that a cache protects, such as a database, a service or a
// model. It counts its loads, can hold them at a gate, and can fail on demand. A load reads its
// value when it begins, as a query does. If a test calls Set while the load runs, the load's result
// doesn't have the new value.
//
// Its methods are safe for concurrent use, except Await and Inject. These two may call tb.Fatalf,
// so call them only on the test's goroutine.
type Origin[V any] struct {
	tb    testing.TB
	value func(key string) V

	mu      sync.Mutex // guards all below
	changed map[string]V
	plans   []*plan
	gate    *gate // the gate at which loads that begin now have to wait; nil: none
	gates   []*gate
	loads   int
	byKey   map[string]int
	running []*visit
	most    int
	ended   bool // the test has ended
	more    signal
}

// gate holds loads until it is opened.
type gate struct {
	opened chan struct{}
	open   bool
	came   int // number of loads that have come to the gate
}

// visit is one load that runs.
type visit struct {
	keys []string
	gate *gate // or nil
	// Closed when the test ends; each load has its own, so that it belongs to the load's synctest
	// bubble.
	over chan struct{}
}

var errTestOver = errors.New("guardtest: the test is over")

// NewOrigin makes an origin. The value of a key is the result of the function value until Set
// changes it. Many loads may call this function at the same time. If loads still wait at a gate
// when the test ends, the test fails. At the end of the test, each load that waits at a gate or for
// its [Fault.Takes] returns an error.
func NewOrigin[V any](tb testing.TB, value func(key string) V) *Origin[V] {
	tb.Helper()
	if value == nil {
		tb.Fatalf("guardtest: NewOrigin: the value function is nil")
	}
	o := &Origin[V]{tb: tb, value: value, changed: make(map[string]V), byKey: make(map[string]int)}
	tb.Cleanup(o.finish)
	return o
}

// Load returns a load function for one key.
func (o *Origin[V]) Load(key string) cacheguard.LoadFunc[V] {
	return func(ctx context.Context) (V, error) { return o.one(ctx, key) }
}

// LoadEntry is like Load, for use with GetEntry. It sets only the Value of the Entry and ignores
// the previous value.
func (o *Origin[V]) LoadEntry(key string) cacheguard.EntryFunc[V] {
	return func(ctx context.Context, _ cacheguard.Result[V]) (cacheguard.Entry[V], error) {
		v, err := o.one(ctx, key)
		return cacheguard.Entry[V]{Value: v}, err
	}
}

// LoadMany is a bulk load: one query for many keys. The origin counts it as one load in total, and
// as one load of each of its keys.
func (o *Origin[V]) LoadMany(ctx context.Context, missing []string) (map[string]V, error) {
	found, f, err := o.query(ctx, missing)
	switch {
	case err != nil:
		return nil, err
	case f.notFound():
		maps.DeleteFunc(found, func(key string, _ V) bool { return f.picks(key) })
	case f.Err != nil:
		return nil, f.Err
	}
	return found, nil
}

// Set changes the value of a key for loads that begin from now on.
func (o *Origin[V]) Set(key string, v V) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed[key] = v
}

// Hold makes loads that begin from now on wait until open is called. If a load's context ends
// before open is called, the load fails with the context's error, unless [Fault.IgnoreContext] is
// set. A second call of open does nothing. If Hold is called again, later loads wait for the new
// open function.
func (o *Origin[V]) Hold() (open func()) {
	g := &gate{opened: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gate, o.gates = g, append(o.gates, g)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !g.open {
			g.open = true
			close(g.opened)
		}
		if o.gate == g {
			o.gate = nil
		}
	}
}

// Await returns when n loads have begun since the origin was made. It counts loads that wait at a
// gate, that run, and that have ended. If fewer loads begin within a minute, Await fails the test
// with tb.Fatalf.
func (o *Origin[V]) Await(n int) {
	o.tb.Helper()
	await(o.tb, &o.mu, &o.more,
		func() bool { return o.loads >= n },
		func() string {
			return fmt.Sprintf("awaited %d loads, saw %d (%d run now)", n, o.loads, len(o.running))
		})
}

// Loads returns how many loads have begun since the origin was made. With keys, it returns the sum
// of the loads of these keys. Without keys, it returns the number of all loads. A bulk load counts
// once in the number of all loads, and once for each of its keys.
func (o *Origin[V]) Loads(keys ...string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(keys) == 0 {
		return o.loads
	}
	n := 0
	for _, key := range keys {
		n += o.byKey[key]
	}
	return n
}

// Running returns how many loads have begun and have not returned.
func (o *Origin[V]) Running() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.running)
}

// MostRunning returns the largest value that Running has had.
func (o *Origin[V]) MostRunning() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most
}

func (o *Origin[V]) one(ctx context.Context, key string) (v V, err error) {
	found, f, err := o.query(ctx, []string{key})
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return v, err
	}
	return found[key], nil
}

// query does one load. It doesn't return the Err of its fault; the caller does that. Its own error
// is the error of the context, or errTestOver. query reads the values, the fault and the gate
// before it counts the load. So a change that a test makes after Await doesn't affect the loads
// that Await has counted.
func (o *Origin[V]) query(ctx context.Context, keys []string) (map[string]V, Fault, error) {
	f, found := o.striking(keys), o.read(keys)
	v := o.begin(keys)
	defer o.end(v)
	if err := v.stay(ctx, f); err != nil {
		return nil, f, err
	}
	switch {
	case f.Panic != nil:
		panic(f.Panic)
	case f.Goexit:
		runtime.Goexit()
	}
	return found, f, nil
}

// read returns the values that the origin has at this moment. It calls the user's function without
// holding the mutex.
func (o *Origin[V]) read(keys []string) map[string]V {
	found := make(map[string]V, len(keys))
	for _, key := range keys {
		o.mu.Lock()
		v, changed := o.changed[key]
		o.mu.Unlock()
		if !changed {
			v = o.value(key)
		}
		found[key] = v
	}
	return found
}

func (o *Origin[V]) begin(keys []string) *visit {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loads++
	for _, key := range keys {
		o.byKey[key]++
	}
	v := &visit{keys: slices.Clone(keys), gate: o.gate, over: make(chan struct{})}
	if v.gate != nil {
		v.gate.came++
	}
	if o.ended {
		close(v.over)
	}
	o.running = append(o.running, v)
	o.most = max(o.most, len(o.running))
	o.more.tell()
	return v
}

func (o *Origin[V]) end(v *visit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = slices.DeleteFunc(o.running, func(other *visit) bool { return other == v })
}

// stay waits at the load's gate, and then for the time Takes.
func (v *visit) stay(ctx context.Context, f Fault) error {
	if f.IgnoreContext {
		ctx = context.WithoutCancel(ctx)
	}
	if v.gate != nil {
		select {
		case <-v.gate.opened:
		case <-ctx.Done():
		case <-v.over:
			return errTestOver
		}
	}
	if f.Takes > 0 && ctx.Err() == nil {
		timer := time.NewTimer(f.Takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-v.over:
			return errTestOver
		}
	}
	return ctx.Err()
}

// finish ends the loads that still run, and fails the test if loads wait at a gate. If a gate is
// still closed but no load waits at it any more, finish only logs a hint, because in some tests a
// load's context ends at a gate.
func (o *Origin[V]) finish() {
	running, shut := o.sendHome()
	for _, g := range shut {
		var waiting []string
		loads := 0
		for _, v := range running {
			if v.gate == g {
				waiting = append(waiting, v.keys...)
				loads++
			}
		}
		if loads > 0 {
			o.tb.Errorf(
				"guardtest: a gate of the origin was never opened; loads that wait at it: %d, of %s",
				loads, someOf(waiting))
		} else {
			o.tb.Logf("guardtest: a gate of the origin was never opened; loads that came to it: %d",
				g.came)
		}
	}
}

// sendHome ends the running loads and returns them. It also returns the gates to which loads have
// come and that the test has not opened.
func (o *Origin[V]) sendHome() (running []*visit, shut []*gate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for _, v := range o.running {
		close(v.over)
	}
	for _, g := range o.gates {
		if !g.open && g.came > 0 {
			shut = append(shut, g)
		}
	}
	return slices.Clone(o.running), shut
}

// someOf returns the names of the first few keys.
func someOf(keys []string) string {
	const few = 5
	if len(keys) > few {
		return fmt.Sprintf("%q and %d more", keys[:few], len(keys)-few)
	}
	return fmt.Sprintf("%q", keys)
}
