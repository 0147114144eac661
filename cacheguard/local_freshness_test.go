package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Where two of the promises about stale values, the local tier, budgets and refreshes meet.

// A: SoftTimeout's offer is served after the stale window has ended.
func TestEdgeOfferEndsWithItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1, cacheguard.Options[int]{TTL: time.Second, StaleIfError: time.Second, SoftTimeout: 10 * time.Millisecond})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		o := &versions{took: 20 * time.Second}
		if res, err := c.GetResult(t.Context(), "k", o.load); err != nil || res.Value != 1 {
			t.Fatalf("within the window: %+v, %v", res, err)
		}
		time.Sleep(15 * time.Second) // the window was over 14.5 s ago
		res, err := c.GetResult(t.Context(), "k", o.load)
		if err == nil && res.Status == cacheguard.StatusStale {
			t.Errorf("15 s after a window of 1 s: %+v", res)
		}
	})
}

// B: a load that goes on after SoftTimeout ran on its parent's slot, which is given back.
func TestEdgeHeldLoadKeepsToTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1, cacheguard.Options[int]{TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond, MaxLoads: 1})[0]
		for i := range 10 {
			if err := c.Set(t.Context(), fmt.Sprint("inner", i), 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		o := ones(t, 10*time.Second)
		for i := range 10 {
			_, err := c.Get(t.Context(), fmt.Sprint("outer", i), func(ctx context.Context) (int, error) {
				return c.Get(ctx, fmt.Sprint("inner", i), o.Load("inner"))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := o.MostRunning(); n > 1 {
			t.Errorf("%d loads at a time with MaxLoads 1", n)
		}
	})
}

type gatedLease struct {
	cacheguard.Store
	gate atomic.Pointer[chan struct{}]
}

func (s *gatedLease) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
	if g := s.gate.Load(); g != nil {
		<-*g
	}
	return s.Store.Lease(ctx, k, ask)
}

// C: an explicit Refresh that joined a background refresh gets an internal error at Close.
func TestEdgeRefreshAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gatedLease{Store: memstore.New(memstore.Options{})}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Name: "edge", TTL: time.Second, StaleWhileRevalidate: time.Hour})
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		// Another process refreshes.
		if _, err := store.Store.Lease(t.Context(), cacheguard.Key{Cache: "edge", Key: "k"}, cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Minute, Seen: seenOf(t, store.Store, "edge", "k")}); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		store.gate.Store(&gate)
		if v, err := c.Get(t.Context(), "k", returning(2)); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		synctest.Wait() // the background refresh asks for the lease
		r := beginCall(t, func() (int, error) { return c.Refresh(t.Context(), "k", returning(3)) })
		synctest.Wait()
		go c.Close()
		synctest.Wait()
		close(gate)
		if _, err := r.later(); !errors.Is(err, cacheguard.ErrClosed) {
			t.Errorf("Refresh returned %v; want ErrClosed", err)
		}
	})
}

func seenOf(t *testing.T, s cacheguard.Store, cache, key string) []byte {
	f, _, err := s.Get(t.Context(), cacheguard.Key{Cache: cache, Key: key}, nil)
	if err != nil || len(f) < 18 {
		t.Fatal(f, err)
	}
	return f[2:18]
}

// D: what a load found to be out of date is still answered by the tier of the process that loaded
// it.
func TestEdgeLocalTierForgetsWhatIsSuperseded(t *testing.T) {
	for name, load := range map[string]cacheguard.LoadFunc[string]{
		"gone":      func(context.Context) (string, error) { return "", cacheguard.ErrNotFound },
		"too large": returning("a much larger value"),
	} {
		bubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{
				TTL: time.Hour, NegativeTTL: -1, MaxValueSize: 5, Local: cacheguard.Local[string]{Entries: 10, TTL: time.Hour}})
			if _, err := c.Get(t.Context(), "k", returning("old")); err != nil {
				t.Fatal(err)
			}
			fresh, err := c.Refresh(t.Context(), "k", load)
			t.Log("refresh:", fresh, err)
			if res, err := c.GetResult(t.Context(), "k", load); res.Value == "old" {
				t.Errorf("after it: %+v, %v", res, err)
			}
		})
	}
}

// E: the copy a caller got from the tier is the one a refresh goes on with, and stores.
func TestEdgeCloneIsTheCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[[]int]{TTL: time.Second, EarlyRefresh: 1000,
			Local: cacheguard.Local[[]int]{Entries: 10, Clone: slices.Clone[[]int]}})
		load := func(ctx context.Context, prev cacheguard.Result[[]int]) (cacheguard.Entry[[]int], error) {
			time.Sleep(100 * time.Millisecond)
			if prev.Status == cacheguard.StatusMiss {
				return cacheguard.Entry[[]int]{Value: []int{1, 2, 3}}, nil
			}
			return cacheguard.Entry[[]int]{NotModified: true}, nil
		}
		for i := range 5 {
			res, err := c.GetEntry(t.Context(), "k", load)
			if err != nil || !slices.Equal(res.Value, []int{1, 2, 3}) {
				t.Fatalf("read %d: %+v, %v", i, res, err)
			}
			if res.Local {
				clear(res.Value) // his own copy
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// F: Goexit in Clone or Weigh on a hit leaves the key dead.
func TestEdgeGoexitInLocal(t *testing.T) {
	for name, l := range map[string]cacheguard.Local[int]{
		"clone": {Entries: 10, Clone: func(int) int { runtime.Goexit(); return 0 }},
		"weigh": {Entries: 10, Weigh: func(string, int) uint32 { runtime.Goexit(); return 0 }},
	} {
		bubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			plain := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
			if err := plain.Set(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Local: l})
			go func() { _, _ = c.Get(t.Context(), "k", returning(2)) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			go func() {
				_, err := c.Get(ctx, "k", returning(2))
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the key is dead: %v after %v", err, time.Since(began))
				}
			}()
			time.Sleep(2 * time.Hour)
		})
	}
}

// G: the work that holds its own flight counts as a waiter.
func TestEdgeMaxWaitersCountsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1, cacheguard.Options[int]{TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond, MaxWaiters: 1})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		o := &versions{took: time.Second}
		for i := range 3 { // one after another
			if v, err := c.Get(t.Context(), "k", o.load); v != 1 || err != nil {
				t.Errorf("call %d, of which there is one at a time: %v, %v", i, v, err)
			}
		}
	})
}

// H: a Refresh that joins an early refresh of the local tier's old value gets what was stored long
// before, and nothing is loaded.
func TestEdgeRefreshLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &gatedLease{Store: shared}
		opts := cacheguard.Options[int]{Name: "edge", TTL: time.Minute, EarlyRefresh: 1000}
		b := openOn(t, cacheguard.Store(shared), opts)
		opts.Local.Entries = 10
		a := openOn(t, cacheguard.Store(store), opts)
		var origin atomic.Int32
		origin.Store(1)
		load := func(ctx context.Context) (int, error) {
			time.Sleep(100 * time.Millisecond)
			return int(origin.Load()), nil
		}
		if v, err := a.Get(t.Context(), "k", load); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		origin.Store(2)
		if v, err := b.Refresh(t.Context(), "k", load); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		time.Sleep(20 * time.Second)
		gate := make(chan struct{})
		store.gate.Store(&gate)
		for range 100 { // local hits; one of them wins the lot
			if v, err := a.Get(t.Context(), "k", load); v != 1 || err != nil {
				t.Fatal(v, err)
			}
		}
		synctest.Wait()
		origin.Store(3) // the origin changes, and then somebody asks for a refresh
		r := beginCall(t, func() (int, error) { return a.Refresh(t.Context(), "k", load) })
		synctest.Wait()
		close(gate)
		r.later()
		r.gives(3, nil)
	})
}

type slowFill struct {
	cacheguard.Store
	took time.Duration
}

func (s *slowFill) Fill(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration) (cacheguard.FillAnswer, error) {
	time.Sleep(s.took)
	return s.Store.Fill(ctx, k, g, f, ttl)
}

// I: the tier answers with a value after its own TTL.
func TestEdgeLocalNeverBeyondTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &slowFill{Store: shared, took: 200 * time.Millisecond}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{TTL: time.Second, Local: cacheguard.Local[int]{Entries: 10}})
		began := time.Now()
		if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		if res, err := c.GetResult(t.Context(), "k", returning(2)); res.Value == 1 {
			t.Errorf("%v after it was made, with a TTL of 1 s: %+v, %v", time.Since(began), res, err)
		}
	})
}

// J: a slow read puts an older value over what this process has loaded itself.
func TestEdgeLocalTierDoesntGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{TTL: time.Hour})
		p.put(t, 1)
		gate := make(chan struct{})
		p.store.hold.Store(&gate)
		slow := beginCall(t, func() (int, error) { return p.near.Get(t.Context(), "k", returning(9)) })
		synctest.Wait() // it has read 1
		p.store.hold.Store(nil)
		if v, err := p.near.Refresh(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if res, err := p.near.Peek(t.Context(), "k"); res.Value != 2 || !res.Local {
			t.Fatalf("after Refresh: %+v, %v", res, err)
		}
		close(gate)
		slow.later()
		if res, err := p.near.Peek(t.Context(), "k"); res.Value != 2 {
			t.Errorf("the tier had 2, which Refresh returned and stored, and now: %+v, %v", res, err)
		}
	})
}

// K: Refresh whose result can't be kept in the tier leaves the older one there.
func TestEdgeRefreshReplacesLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		c := openOn(t, cacheguard.Store(shared), cacheguard.Options[int]{TTL: time.Hour,
			Local: cacheguard.Local[int]{Entries: 10, TTL: time.Hour, Weigh: func(_ string, v int) uint32 {
				if v == 2 {
					panic("weigh")
				}
				return 1
			}}})
		if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Refresh(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if res, err := c.GetResult(t.Context(), "k", returning(3)); res.Value != 2 {
			t.Errorf("after Refresh: %+v, %v", res, err)
		}
	})
}

type lostFill struct {
	cacheguard.Store
	lost atomic.Bool
}

func (s *lostFill) Fill(ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration) (cacheguard.FillAnswer, error) {
	a, err := s.Store.Fill(ctx, k, g, f, ttl)
	if s.lost.Load() {
		return 0, errors.New("no answer")
	}
	return a, err
}

// L: the same when the answer to the fill is lost.
func TestEdgeRefreshUnknownFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &lostFill{Store: shared}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{TTL: time.Hour, Local: cacheguard.Local[int]{Entries: 10, TTL: time.Hour}})
		if _, err := c.Get(t.Context(), "k", returning(1)); err != nil {
			t.Fatal(err)
		}
		store.lost.Store(true)
		if v, err := c.Refresh(t.Context(), "k", returning(2)); v != 2 || err != nil {
			t.Fatal(v, err)
		}
		if res, err := c.GetResult(t.Context(), "k", returning(3)); res.Value != 2 {
			t.Errorf("after Refresh: %+v, %v", res, err)
		}
	})
}

// slowRead is a store whose reads take a while, but end with their context.
type slowRead struct {
	cacheguard.Store
	took atomic.Int64
}

func (s *slowRead) Get(ctx context.Context, k cacheguard.Key, tags []string) ([]byte, cacheguard.Generations, error) {
	select {
	case <-time.After(time.Duration(s.took.Load())):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	return s.Store.Get(ctx, k, tags)
}

// M: callers who joined a look-up whose leader ran out of time wait for the load, within
// StaleWhileRevalidate.
func TestEdgeNobodyWaitsForARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &slowRead{Store: shared}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Hour})
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		store.took.Store(int64(20 * time.Millisecond))
		o := &versions{took: 10 * time.Second}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		first := getting(short, t, c, "k", o.load)
		synctest.Wait()
		began := time.Now()
		res, err := c.GetResult(t.Context(), "k", o.load)
		if took := time.Since(began); took > time.Second {
			t.Errorf("with a value good for an hour at hand a caller waited %v: %+v, %v", took, res, err)
		}
		first.later()
	})
}

type farPermits struct {
	*memstore.Store
	trip time.Duration
}

func (s *farPermits) TakePermit(ctx context.Context, name string, token cacheguard.ID, max int, ttl time.Duration) (bool, time.Duration, error) {
	time.Sleep(s.trip / 2)
	defer time.Sleep(s.trip / 2)
	return s.Store.TakePermit(ctx, name, token, max, ttl)
}

// N: permits are renewed one after another, so a process with many loses them.
func TestEdgeManyPermitsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		cs := budgeted(t, cacheguard.Store(&farPermits{Store: shared, trip: 60 * time.Millisecond}), 2, 64)
		o := ones(t, 20*time.Second)
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() { _, _ = cs[0].Get(t.Context(), fmt.Sprint("a", i), o.Load("a")) })
		}
		time.Sleep(6 * time.Second)
		for i := range 10 {
			calls.Go(func() { _, _ = cs[1].Get(t.Context(), fmt.Sprint("b", i), o.Load("b")) })
		}
		calls.Wait()
		time.Sleep(time.Minute) // for the last renewal
		if n := o.MostRunning(); n > 64 {
			t.Errorf("%d loads at a time with a budget of 64", n)
		}
	})
}

// O: a nil store from an ignored error is an error of New, and a panic of NewFleetLimiter.
func TestEdgeFleetLimiterOnNil(t *testing.T) {
	var none *memstore.Store
	if _, err := cacheguard.New[int](none, cacheguard.Options[int]{Name: "x"}); err == nil {
		t.Error("New took it")
	}
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("panic: %v", v)
		}
	}()
	if _, err := cacheguard.NewFleetLimiter(none, "x", 1, 1); err == nil {
		t.Error("NewFleetLimiter took it")
	}
}

// P: a distrusted value is served as stale with a FreshFor above zero.
func TestEdgeFreshForOfStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, cacheguard.Options[int]{TTL: time.Minute, StaleIfError: time.Hour})
		p.put(t, 1)
		p.reads(t, 1, false)
		p.store.lose()
		p.store.down.Store(true)
		res, err := p.near.GetResult(t.Context(), "k", returning(2))
		if err != nil || res.Status == cacheguard.StatusStale && res.FreshFor >= 0 {
			t.Errorf("%+v, %v", res, err)
		}
		t.Logf("%+v", res)
	})
}

func TestEdgeRefreshBesideABackgroundOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fleetOf(t, 1, cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Hour, MaxWaiters: 1})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		o := &versions{took: time.Second}
		at(t, c, o.load)
		synctest.Wait()
		if v, err := c.Refresh(t.Context(), "k", o.load); v != 1 || err != nil {
			t.Errorf("the only caller: %v, %v", v, err)
		}
	})
}

func TestEdgeStaleIsNoMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &guardtest.Recorder{}
		c := fleetOf(t, 1, cacheguard.Options[int]{TTL: time.Second, StaleWhileRevalidate: time.Hour, Observer: events})[0]
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		at(t, c, returning(2))
		if events.Count(cacheguard.EventMiss) > 0 {
			t.Errorf("a stale value that is served at once: %v", events)
		}
	})
}
