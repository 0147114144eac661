package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// These tests check the timing of the lease protocol on a fake clock, to the millisecond. A real
// clock is not exact enough. Caches of one name on one memstore are the processes of a fleet.

// slack is the most that a waiter adds to the end of a lease, so that not everybody asks in the
// same moment.
const slack = 10 * time.Millisecond

type fleet struct {
	t     *testing.T
	store cacheguard.Store
	opts  cacheguard.Options[string]
}

func newFleet(t *testing.T, opts cacheguard.Options[string]) *fleet {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	opts.Name = "timing"
	return &fleet{t: t, store: store, opts: opts}
}

// process is one more process of the fleet.
func (f *fleet) process() *cacheguard.Cache[string] { return f.processOn(f.store) }

func (f *fleet) processOn(store cacheguard.Store) *cacheguard.Cache[string] {
	f.t.Helper()
	c, err := cacheguard.New(store, f.opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// crash takes the lease, like a process that dies right after it.
func (f *fleet) crash(key string, lease time.Duration) {
	f.t.Helper()
	ans, err := f.store.Lease(f.t.Context(), cacheguard.Key{Cache: "timing", Key: key},
		cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: lease})
	if err != nil || ans.State != cacheguard.LeaseGranted {
		f.t.Fatalf("the lease was not granted: %+v, %v", ans, err)
	}
}

// origin counts loads and notes when they begin.
type origin struct {
	took  time.Duration
	value string
	err   error
	loads atomic.Int32

	mu    sync.Mutex // guards began
	began []time.Time
}

func (o *origin) load(ctx context.Context) (string, error) {
	o.loads.Add(1)
	o.mu.Lock()
	o.began = append(o.began, time.Now())
	o.mu.Unlock()
	select {
	case <-time.After(o.took):
		return o.value, o.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func between(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

// P1: a dead leader's key is loaded again when its lease is over, and not before, by one of those
// who wait.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, cacheguard.Options[string]{LeaseTTL: 2 * time.Second})
		o := &origin{took: 100 * time.Millisecond, value: "v"}
		f.crash("k", 2*time.Second)
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			c := f.process()
			for range 10 {
				wg.Go(func() {
					v, err := c.Get(t.Context(), "k", o.load)
					if v != "v" || err != nil {
						t.Errorf("got %q, %v", v, err)
					}
					between(t, "an answer", time.Since(start), 2100*time.Millisecond,
						2100*time.Millisecond+2*slack)
				})
			}
		}
		wg.Wait()
		if n := o.loads.Load(); n != 1 {
			t.Fatalf("%d loads after the dead one", n)
		}
		between(t, "the load began", o.began[0].Sub(start), 2*time.Second, 2*time.Second+slack)
	})
}

// P1: a live leader keeps its lease for as long as it loads, and P2: the others get its result at
// once.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &guardtest.Recorder{}
		fleet := guardtest.NewFleet(t, 4,
			cacheguard.Options[string]{LeaseTTL: 600 * time.Millisecond, Observer: events})
		o := guardtest.NewOrigin(t, func(string) string { return "v" })
		o.Inject(guardtest.Fault{Takes: 2500 * time.Millisecond})
		for _, a := range fleet.Stampede(t.Context(), "k", 1, o.Load("k")) {
			if a.Result.Value != "v" || a.Err != nil {
				t.Errorf("got %q, %v", a.Result.Value, a.Err)
			}
			between(t, "an answer", a.Took, 2500*time.Millisecond, 2500*time.Millisecond)
		}
		if n := o.Loads(); n != 1 {
			t.Errorf("%d loads", n)
		}
		// At a third of the lease: 200 ms, 400 ms, ... 2400 ms.
		if n := events.Count(cacheguard.EventRenewed); n != 12 {
			t.Errorf("%d renewals", n)
		}
	})
}

// P2: without the message that should wake it, a waiter looks again when the lease is over: later,
// and without a load.
func TestLostWakeUp(t *testing.T) {
	for what, o := range map[string]*origin{
		"value": {took: 500 * time.Millisecond, value: "v"},
		"error": {took: 500 * time.Millisecond, err: errors.New("no database")},
	} {
		bubble(t, what, func(t *testing.T) {
			f := newFleet(t, cacheguard.Options[string]{LeaseTTL: 3 * time.Second, ErrorTTL: -1})
			leader, deaf := f.process(), f.processOn(deafStore{f.store})
			start := time.Now()
			go leader.Get(t.Context(), "k", o.load)
			synctest.Wait()
			v, err := deaf.Get(t.Context(), "k", o.load)
			var remote *cacheguard.LoadError
			if o.err == nil && (v != "v" || err != nil) ||
				o.err != nil && !errors.As(err, &remote) {
				t.Errorf("got %q, %v", v, err)
			}
			between(t, "the answer", time.Since(start), 3*time.Second, 3*time.Second+slack)
			if n := o.loads.Load(); n != 1 {
				t.Errorf("%d loads", n)
			}
		})
	}
}

// Without messages at all, waiters ask with growing pauses, not in a tight loop.
func TestPollingWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, cacheguard.Options[string]{LeaseTTL: 3 * time.Second})
		o := &origin{took: 10 * time.Second, value: "v"}
		asked := &countingStore{Store: deafStore{f.store}}
		leader, poller := f.process(), f.processOn(silentStore{asked})
		go leader.Get(t.Context(), "k", o.load)
		synctest.Wait()
		start := time.Now()
		if v, err := poller.Get(t.Context(), "k", o.load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		between(t, "the answer", time.Since(start), o.took, o.took+1250*time.Millisecond)
		if n := asked.leases.Load(); n < 10 || n > 30 {
			t.Errorf("asked %d times in 10 s", n)
		}
		if n := o.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// P6: a load that never returns loses its callers at LoadTimeout, everywhere, and its key is free.
func TestLoadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, cacheguard.Options[string]{
			LeaseTTL: time.Second, LoadTimeout: 5 * time.Second, ErrorTTL: -1,
		})
		forever := make(chan struct{})
		defer close(forever)
		start := time.Now()
		var wg sync.WaitGroup
		var here, elsewhere atomic.Int32
		for range 3 {
			c := f.process()
			wg.Go(func() {
				_, err := c.Get(t.Context(), "k", func(context.Context) (string, error) {
					<-forever // and doesn't look at its context
					return "", nil
				})
				var remote *cacheguard.LoadError
				switch {
				case !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("got %v", err)
				case errors.As(err, &remote):
					elsewhere.Add(1)
				default:
					here.Add(1)
				}
				between(t, "the error", time.Since(start), 5*time.Second, 5*time.Second)
			})
		}
		wg.Wait()
		if here.Load() != 1 || elsewhere.Load() != 2 {
			t.Errorf("%d deadlines and %d errors from elsewhere", here.Load(), elsewhere.Load())
		}
		o := &origin{value: "v"}
		if v, err := f.process().Get(t.Context(), "k", o.load); v != "v" || err != nil ||
			time.Since(start) != 5*time.Second {
			t.Errorf("the key is not free: %q, %v after %v", v, err, time.Since(start))
		}
	})
}

// Values live exactly as long as they are said to, also below a second.
func TestLifetimes(t *testing.T) {
	for _, c := range []struct {
		name string
		opts cacheguard.Options[string]
		err  error
		want time.Duration
	}{
		{
			"TTL", cacheguard.Options[string]{TTL: 50 * time.Millisecond, Jitter: -1}, nil,
			50 * time.Millisecond,
		},
		{"default TTL", cacheguard.Options[string]{Jitter: -1}, nil, 5 * time.Minute},
		{
			"NegativeTTL",
			cacheguard.Options[string]{NegativeTTL: 70 * time.Millisecond, Jitter: -1},
			cacheguard.ErrNotFound, 70 * time.Millisecond,
		},
		{
			"default NegativeTTL", cacheguard.Options[string]{Jitter: -1}, cacheguard.ErrNotFound,
			30 * time.Second,
		},
		{
			"ErrorTTL", cacheguard.Options[string]{ErrorTTL: 90 * time.Millisecond},
			errors.New("no database"), 90 * time.Millisecond,
		},
		{"default ErrorTTL", cacheguard.Options[string]{}, errors.New("no database"), time.Second},
	} {
		bubble(t, c.name, func(t *testing.T) {
			f := newFleet(t, c.opts)
			first, second := f.process(), f.process()
			o := &origin{value: "v", err: c.err}
			get := func(from *cacheguard.Cache[string], want int32) {
				t.Helper()
				if _, err := from.Get(t.Context(), "k", o.load); (err == nil) != (c.err == nil) {
					t.Fatalf("got %v", err)
				}
				if n := o.loads.Load(); n != want {
					t.Fatalf("%d loads, want %d", n, want)
				}
			}
			get(first, 1)
			time.Sleep(c.want - time.Millisecond)
			get(first, 1)
			get(second, 1)
			time.Sleep(time.Millisecond)
			get(second, 2)
		})
	}
}

// Jitter only shortens, by no more than it says, and differently for each value.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The default of a tenth.
		f := newFleet(t, cacheguard.Options[string]{TTL: 10 * time.Second})
		c := f.process()
		different := make(map[time.Duration]bool)
		for i := range 200 {
			r, err := c.GetResult(t.Context(), fmt.Sprint(i), (&origin{value: "v"}).load)
			if err != nil {
				t.Fatal(err)
			}
			between(t, "a TTL", r.FreshFor, 9*time.Second, 10*time.Second)
			different[r.FreshFor] = true
		}
		if len(different) < 100 {
			t.Errorf("only %d different TTLs of 200", len(different))
		}
	})
}

// A waiter of another process asks again at once when the lease is given up, and not only at its
// end.
func TestAbandonedIsTakenOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, cacheguard.Options[string]{LeaseTTL: 10 * time.Second})
		first, second := f.process(), f.process()
		o := &origin{took: time.Second, value: "v"}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		left := make(chan error, 1)
		go func() {
			_, err := first.Get(ctx, "k", o.load)
			left <- err
		}()
		synctest.Wait()
		v, err := second.Get(t.Context(), "k", o.load)
		if v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		between(t, "the answer", time.Since(start), 1300*time.Millisecond, 1300*time.Millisecond)
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who left got %v", err)
		}
	})
}

// A renewal that fails for a while is tried again until the lease's time is over, counted from the
// last success.
func TestRenewalSurvivesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, cacheguard.Options[string]{LeaseTTL: 900 * time.Millisecond})
		flaky := &flakyRenewals{Store: f.store}
		leader, waiter := f.processOn(flaky), f.process()
		o := &origin{took: 5 * time.Second, value: "v"}
		flaky.broken.Store(true)
		// Below the 900 ms.
		time.AfterFunc(700*time.Millisecond, func() { flaky.broken.Store(false) })
		go leader.Get(t.Context(), "k", o.load)
		synctest.Wait()
		if v, err := waiter.Get(t.Context(), "k", o.load); v != "v" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if n := o.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
		if n := flaky.failed.Load(); n < 3 {
			t.Errorf("only %d renewals failed: it did not try again", n)
		}
	})
}

// deafStore loses every message.
type deafStore struct{ cacheguard.Store }

func (deafStore) Listen(string, func(cacheguard.Message)) func() { return func() {} }

// silentStore says that messages don't arrive.
type silentStore struct{ cacheguard.Store }

func (silentStore) Listening() bool { return false }

// countingStore counts how often the lease was asked for.
type countingStore struct {
	cacheguard.Store
	leases atomic.Int32
}

func (s *countingStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	s.leases.Add(1)
	return s.Store.Lease(ctx, k, ask)
}

// flakyRenewals fails renewals while it is broken.
type flakyRenewals struct {
	cacheguard.Store
	broken atomic.Bool
	failed atomic.Int32
}

func (s *flakyRenewals) Renew(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, ttl time.Duration,
) (cacheguard.Holding, error) {
	if s.broken.Load() {
		s.failed.Add(1)
		return 0, errors.New("no answer")
	}
	return s.Store.Renew(ctx, k, g, ttl)
}

// A caller doesn't wait for loads elsewhere for ever, also if something is heard of each in time.
func TestWaitingEndsAlsoWithMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		c := openOn(t, store,
			cacheguard.Options[string]{LoadTimeout: 5 * time.Second, LeaseTTL: time.Second})
		store.lease = func(cacheguard.LeaseAnswer) cacheguard.LeaseAnswer {
			return cacheguard.LeaseAnswer{
				State: cacheguard.LeaseHeld, Holder: cacheguard.ID{1}, Remaining: time.Second,
			}
		}
		call := getting(t.Context(), t, c, "k", returning("v"))
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			store.says(cacheguard.Message{
				Kind: cacheguard.MessageReleased, Key: "k", Load: cacheguard.ID{1},
			})
		}
		if !call.returned() || !errors.Is(call.err, context.DeadlineExceeded) ||
			call.took > 12*time.Second {
			t.Errorf("the caller got %v after %v", call.err, call.took)
		}
	})
}
