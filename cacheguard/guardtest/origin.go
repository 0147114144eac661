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

// Origin stands for what a cache protects: a database, a service, a model. It counts its loads, can
// hold them at a gate, and fails as it is told to. A load reads its value when it begins, as a
// query does: what is Set while it runs is not in its result.
//
// Its methods are safe for concurrent use, but for Await and Inject, which may call tb.Fatalf and
// so belong on the test's goroutine.
type Origin[V any] struct {
	tb    testing.TB
	value func(key string) V

	mu      sync.Mutex // guards all below
	changed map[string]V
	plans   []*plan
	gate    *gate // where loads that begin now have to wait; nil: nowhere
	gates   []*gate
	loads   int
	byKey   map[string]int
	running []*visit
	most    int
	ended   bool // the test has
	more    signal
}

// gate holds loads until it is opened.
type gate struct {
	opened chan struct{}
	open   bool
	came   int // loads
}

// visit is one load that runs.
type visit struct {
	keys []string
	gate *gate         // or nil
	over chan struct{} // closed when the test ends; one for each load, so that it belongs to the bubble of the load
}

var errTestOver = errors.New("guardtest: the test is over")

// NewOrigin makes an origin that has this value for each key, until Set changes it. value is called
// by the loads, by many at once. When the test ends, loads that still wait at a gate make it fail;
// they and all that still take their time return an error then.
func NewOrigin[V any](tb testing.TB, value func(key string) V) *Origin[V] {
	tb.Helper()
	if value == nil {
		tb.Fatalf("guardtest: NewOrigin: the value function is nil")
	}
	o := &Origin[V]{tb: tb, value: value, changed: make(map[string]V), byKey: make(map[string]int)}
	tb.Cleanup(o.finish)
	return o
}

// Load is the load of one key.
func (o *Origin[V]) Load(key string) cacheguard.LoadFunc[V] {
	return func(ctx context.Context) (V, error) { return o.one(ctx, key) }
}

// LoadEntry is Load as GetEntry wants it: of the Entry only Value is set, and the previous value is
// of no matter.
func (o *Origin[V]) LoadEntry(key string) cacheguard.EntryFunc[V] {
	return func(ctx context.Context, _ cacheguard.Result[V]) (cacheguard.Entry[V], error) {
		v, err := o.one(ctx, key)
		return cacheguard.Entry[V]{Value: v}, err
	}
}

// LoadMany is a bulk load, one query for many keys. It counts as one load, and as one of each of
// its keys.
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

// Set changes the value of a key, for loads that begin from now on.
func (o *Origin[V]) Set(key string, v V) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed[key] = v
}

// Hold has loads that begin from now on wait until open is called, or until their context ends,
// whose error they then fail with (see Fault.IgnoreContext). Calling open twice is fine. After
// another Hold, newcomers wait for that one's open.
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

// Await returns when n loads have begun since the origin was made, be they at a gate, running or
// over. If that doesn't come true within a minute it fails the test with tb.Fatalf.
func (o *Origin[V]) Await(n int) {
	o.tb.Helper()
	await(o.tb, &o.mu, &o.more,
		func() bool { return o.loads >= n },
		func() string { return fmt.Sprintf("awaited %d loads, saw %d (%d run now)", n, o.loads, len(o.running)) })
}

// Loads is how many loads have begun since the origin was made: of the given keys, added up, or
// without any of all. A bulk load is one in all, and one of each of its keys.
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

// Running is how many loads have begun and not returned.
func (o *Origin[V]) Running() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.running)
}

// MostRunning is the most that Running has been.
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

// query is one load, but for its fault's Err; its own error is that of its context. All that
// decides about it is done before it is counted, so that what a test changes after Await is not for
// the loads it has awaited.
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

// read is what the origin has at this moment. The user's function is called without the mutex.
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

// stay takes the time of a load: that at its gate and its own.
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

// finish ends what still runs, and fails a test that forgot loads at a gate. Of a gate that was
// left closed without harm it only leaves a hint, for a load whose context ended there is what some
// tests are about.
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
			o.tb.Errorf("guardtest: a gate of the origin was never opened; loads that wait at it: %d, of %s", loads, someOf(waiting))
		} else {
			o.tb.Logf("guardtest: a gate of the origin was never opened; loads that came to it: %d", g.came)
		}
	}
}

// sendHome ends the loads that run and returns them, and the gates to which loads came and that
// nobody has opened.
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

// someOf are the first few keys.
func someOf(keys []string) string {
	const few = 5
	if len(keys) > few {
		return fmt.Sprintf("%q and %d more", keys[:few], len(keys)-few)
	}
	return fmt.Sprintf("%q", keys)
}
