package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// origin is the system that caches protect. It counts its loads, and can hold them.
type origin struct {
	loads atomic.Int64
	began chan struct{} // gets a value for each load, as long as there is room

	mu    sync.Mutex // guards the fields below
	value string
	err   error
	gate  chan struct{} // a load returns only when its gate is closed or its context ends
}

func newOrigin(value string) *origin {
	return &origin{value: value, began: make(chan struct{}, 1000)}
}

// hold holds all loads that begin later, until the returned function is called.
func (o *origin) hold() (letGo func()) {
	gate := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gate = gate
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		close(gate)
		if o.gate == gate {
			o.gate = nil
		}
	})
}

func (o *origin) set(value string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.value, o.err = value, err
}

// load reads the value when it begins, as a query would.
func (o *origin) load(ctx context.Context) (string, error) {
	o.loads.Add(1)
	o.mu.Lock()
	value, err, gate := o.value, o.err, o.gate
	o.mu.Unlock()
	select {
	case o.began <- struct{}{}:
	default: // no test counts thousands of them
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return value, err
}

// loaded checks the number of loads so far.
func (o *origin) loaded(t *testing.T, want int64) {
	t.Helper()
	if got := o.loads.Load(); got != want {
		t.Errorf("the origin saw %d loads; want %d", got, want)
	}
}

// answer is the result of one call.
type answer struct {
	res  cacheguard.Result[string]
	err  error
	took time.Duration
}

// crowd is a set of callers of one key in one replica.
type crowd struct {
	leave   context.CancelFunc
	arrived sync.WaitGroup // every caller has joined a flight
	gone    sync.WaitGroup
	answers []answer
}

// ask starts n callers of a key in this replica, and doesn't wait for them.
func (r *replica) ask(t *testing.T, n int, key string, load cacheguard.LoadFunc[string]) *crowd {
	t.Helper()
	c := &crowd{answers: make([]answer, n)}
	ctx, leave := context.WithCancel(context.Background())
	c.leave = leave
	t.Cleanup(func() {
		leave()
		c.gone.Wait()
	})
	c.arrived.Add(n)
	for i := range n {
		c.gone.Go(func() {
			ctx := &arriving{Context: ctx, tell: sync.OnceFunc(c.arrived.Done)}
			defer ctx.tell()
			began := time.Now()
			a := &c.answers[i]
			a.res, a.err = r.cache.GetResult(ctx, key, load)
			a.took = time.Since(began)
		})
	}
	return c
}

// get makes one call and waits for it.
func (r *replica) get(t *testing.T, key string, load cacheguard.LoadFunc[string]) answer {
	t.Helper()
	return r.ask(t, 1, key, load).wait(t)[0]
}

// wait returns the answers of the callers.
func (c *crowd) wait(t *testing.T) []answer {
	t.Helper()
	all := make(chan struct{})
	go func() {
		c.gone.Wait()
		close(all)
	}()
	waittest.Next(t, "all callers have their answer", all)
	return c.answers
}

// got checks that every caller got this value.
func (c *crowd) got(t *testing.T, want string) {
	t.Helper()
	for _, a := range c.wait(t) {
		a.is(t, want)
	}
}

func (a answer) is(t *testing.T, want string) {
	t.Helper()
	if a.err != nil || a.res.Value != want {
		t.Errorf("a caller got %q, %v; want %q", a.res.Value, a.err, want)
	}
}

// hit checks that the answer came from the store.
func (a answer) hit(t *testing.T, want string) {
	t.Helper()
	a.is(t, want)
	if a.err == nil && a.res.Status != cacheguard.StatusHit {
		t.Errorf("a caller was served with status %v; want a hit", a.res.Status)
	}
}

// arriving is the context of a caller. It tells the test when the cache waits for it, which the
// cache does only for members of a flight.
type arriving struct {
	context.Context
	tell func()
}

func (a *arriving) Done() <-chan struct{} {
	a.tell()
	return a.Context.Done()
}

// mustNotLoad is a load for a key that must have a value.
func mustNotLoad(t *testing.T) cacheguard.LoadFunc[string] {
	return func(context.Context) (string, error) {
		t.Errorf("%s: something was loaded; want that it comes from the store", t.Name())
		return "loaded once more", nil
	}
}
