package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Most tests of this package run in bubbles. The clock of a bubble moves only when all goroutines
// wait, so "at once" means without any time on this clock. A bubble fails if a goroutine is left
// when its test has ended.

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// openOn opens a cache as a process of a fleet does. All caches that are opened on one store are
// one fleet.
func openOn[V any](
	t *testing.T, store cacheguard.Store, opts cacheguard.Options[V],
) *cacheguard.Cache[V] {
	t.Helper()
	if opts.Name == "" {
		opts.Name = "behave"
	}
	if opts.Jitter == 0 {
		opts.Jitter = -1
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := cacheguard.New(store, opts)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// openLookingFirst opens a cache that looks a value up before it asks for the lease, because it has
// found all values so far.
func openLookingFirst[V any](
	t *testing.T, store cacheguard.Store, opts cacheguard.Options[V],
) *cacheguard.Cache[V] {
	t.Helper()
	writer := openOn(t, store, cacheguard.Options[V]{Name: opts.Name, TTL: time.Hour})
	keys := make([]string, 100)
	for i := range keys {
		var value V
		keys[i] = fmt.Sprint("found before ", i)
		if err := writer.Set(t.Context(), keys[i], value); err != nil {
			t.Fatalf("Set: %v", err)
		}
	}
	writer.Close()
	c := openOn(t, store, opts)
	for _, key := range keys {
		if _, err := c.Get(t.Context(), key, failingWith[V](errors.New("not found"))); err != nil {
			t.Fatalf("Get: %v", err)
		}
	}
	return c
}

// begun is a call on its own goroutine.
type begun[T any] struct {
	t     *testing.T
	done  chan struct{} // closed when the fields below are set
	value T
	err   error
	took  time.Duration
	died  bool // the goroutine ended before the call returned
}

func beginCall[T any](t *testing.T, do func() (T, error)) *begun[T] {
	c := &begun[T]{t: t, done: make(chan struct{}), died: true}
	began := time.Now()
	go func() {
		defer close(c.done)
		c.value, c.err = do()
		c.took, c.died = time.Since(began), false
	}()
	return c
}

func getting[V any](
	ctx context.Context, t *testing.T, c *cacheguard.Cache[V], key string,
	load cacheguard.LoadFunc[V],
) *begun[V] {
	return beginCall(t, func() (V, error) { return c.Get(ctx, key, load) })
}

func gettingResult[V any](
	ctx context.Context, t *testing.T, c *cacheguard.Cache[V], key string,
	load cacheguard.LoadFunc[V],
) *begun[cacheguard.Result[V]] {
	return beginCall(t, func() (cacheguard.Result[V], error) {
		return shown(c.GetResult(ctx, key, load))
	})
}

func gettingEntry[V any](
	ctx context.Context, t *testing.T, c *cacheguard.Cache[V], key string,
	load cacheguard.LoadFunc[cacheguard.Entry[V]],
) *begun[cacheguard.Result[V]] {
	return beginCall(t, func() (cacheguard.Result[V], error) {
		return shown(c.GetEntry(ctx, key, entries(load)))
	})
}

// shown returns the result with only its exported fields. The others differ each time.
func shown[V any](res cacheguard.Result[V], err error) (cacheguard.Result[V], error) {
	var only cacheguard.Result[V]
	from, to := reflect.ValueOf(res), reflect.ValueOf(&only).Elem()
	for i := range from.NumField() {
		if from.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return only, err
}

// entries makes an EntryFunc of a load of entries.
func entries[V any](load cacheguard.LoadFunc[cacheguard.Entry[V]]) cacheguard.EntryFunc[V] {
	return func(ctx context.Context, _ cacheguard.Result[V]) (cacheguard.Entry[V], error) {
		return load(ctx)
	}
}

// returned reports whether the call has returned by now.
func (c *begun[T]) returned() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// now returns what the call has returned by now.
func (c *begun[T]) now() (T, error) {
	c.t.Helper()
	if !c.returned() {
		c.t.Fatal("the call has not returned")
	}
	return c.value, c.err
}

// later lets time pass until the call returns.
func (c *begun[T]) later() (T, error) {
	<-c.done
	return c.value, c.err
}

// gives tests that the call has already returned this value and this error. The wanted error must
// be in the chain of the returned error.
func (c *begun[T]) gives(value T, want error) {
	c.t.Helper()
	got, err := c.now()
	if !reflect.DeepEqual(got, value) || !errors.Is(err, want) {
		c.t.Errorf("the call returned %#v, %v; want %#v, %v", got, err, value, want)
	}
}

// waits tests that the call has not returned.
func (c *begun[T]) waits() {
	c.t.Helper()
	if c.returned() {
		c.t.Errorf("the call returned %#v, %v; want it to wait", c.value, c.err)
	}
}

// scriptedOrigin is the origin of loads. Each load lasts until the test ends it.
type scriptedOrigin[V any] struct {
	t      *testing.T
	visits chan *scriptedLoad[V]
	count  atomic.Int32
	over   chan struct{} // the test is over
}

type scriptedLoad[V any] struct {
	ctx context.Context
	end chan func() (V, error)
}

func newScriptedOrigin[V any](t *testing.T) *scriptedOrigin[V] {
	o := &scriptedOrigin[V]{
		t: t, visits: make(chan *scriptedLoad[V], 10000), over: make(chan struct{}),
	}
	t.Cleanup(func() { close(o.over) })
	return o
}

func (o *scriptedOrigin[V]) visit(ctx context.Context) *scriptedLoad[V] {
	v := &scriptedLoad[V]{ctx: ctx, end: make(chan func() (V, error), 1)}
	o.count.Add(1)
	o.visits <- v
	return v
}

var errTestOver = errors.New("the test is over")

// load is a well-behaved load: it stops when its context ends.
func (o *scriptedOrigin[V]) load(ctx context.Context) (v V, err error) {
	visit := o.visit(ctx)
	select {
	case end := <-visit.end:
		return end()
	case <-ctx.Done():
		return v, ctx.Err()
	case <-o.over:
		return v, errTestOver
	}
}

// stubborn is a load that ignores its context.
func (o *scriptedOrigin[V]) stubborn(ctx context.Context) (v V, err error) {
	visit := o.visit(ctx)
	select {
	case end := <-visit.end:
		return end()
	case <-o.over:
		return v, errTestOver
	}
}

// next returns the load that has just begun.
func (o *scriptedOrigin[V]) next() *scriptedLoad[V] {
	o.t.Helper()
	synctest.Wait()
	select {
	case v := <-o.visits:
		return v
	default:
		o.t.Fatal("no load has begun")
		return nil
	}
}

// idle tests that no further load has begun.
func (o *scriptedOrigin[V]) idle() {
	o.t.Helper()
	synctest.Wait()
	if n := len(o.visits); n > 0 {
		o.t.Errorf("%d loads have begun; want none", n)
	}
}

// loads tests the total number of loads.
func (o *scriptedOrigin[V]) loads(want int) {
	o.t.Helper()
	synctest.Wait()
	if n := int(o.count.Load()); n != want {
		o.t.Errorf("there were %d loads; want %d", n, want)
	}
}

func (v *scriptedLoad[V]) ends(how func() (V, error)) { v.end <- how }
func (v *scriptedLoad[V]) gives(value V) {
	v.ends(func() (V, error) { return value, nil })
}

func (v *scriptedLoad[V]) fails(err error) {
	v.ends(func() (V, error) {
		var zero V
		return zero, err
	})
}

// cancelled reports whether the load's context has ended.
func (v *scriptedLoad[V]) cancelled() bool {
	synctest.Wait()
	return v.ctx.Err() != nil
}

// returning returns a load that returns v at once.
func returning[V any](v V) cacheguard.LoadFunc[V] {
	return func(context.Context) (V, error) { return v, nil }
}

// failingWith returns a load that fails with err at once.
func failingWith[V any](err error) cacheguard.LoadFunc[V] {
	return func(context.Context) (v V, _ error) { return v, err }
}
