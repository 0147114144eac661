package coretest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// ones is an origin whose loads take this long and return 1.
func ones(t *testing.T, takes time.Duration) *guardtest.Origin[int] {
	o := guardtest.NewOrigin(t, func(string) int { return 1 })
	o.Inject(guardtest.Fault{Takes: takes})
	return o
}

// budgeted makes the processes of a fleet with one budget.
func budgeted(t *testing.T, store cacheguard.Store, n, max int) []*cacheguard.Cache[int] {
	t.Helper()
	cs := make([]*cacheguard.Cache[int], n)
	for i := range cs {
		l, err := cacheguard.NewFleetLimiter(store, "database", max, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		cs[i] = openOn(t, store, cacheguard.Options[int]{Name: "budget", Limiter: l})
	}
	return cs
}

// 10,000 different cold keys can't do what one hot key isn't allowed to, in the whole fleet.
func TestFleetBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		cs := budgeted(t, store, 4, 20)
		o := ones(t, 50*time.Millisecond)
		// Rather than the test's own end, if nobody hears of a permit.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		var calls sync.WaitGroup
		for i := range 2000 {
			calls.Go(func() {
				if v, err := cs[i%4].Get(ctx, fmt.Sprint(i), o.Load(fmt.Sprint(i))); v != 1 ||
					err != nil {
					t.Errorf("got %v, %v", v, err)
				}
			})
		}
		calls.Wait()
		if n := o.MostRunning(); n != 20 {
			t.Errorf("%d loads at a time; want 20, all of the budget", n)
		}
		// 2,000 loads of 50 ms, 20 at a time: no permit is idle for long.
		between(t, "all of them", time.Since(began), 5*time.Second, 5500*time.Millisecond)
	})
}

// A process keeps a permit as long as its load runs. If the process dies, the permit ends after its
// time.
func TestPermitsAreLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		cs := budgeted(t, store, 2, 1)
		long := ones(t, 20*time.Second)
		first := getting(t.Context(), t, cs[0], "long", long.Load("long"))
		synctest.Wait()
		began := time.Now()
		if v, err := cs[1].Get(t.Context(), "short", long.Load("short")); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		if n := long.MostRunning(); n != 1 {
			t.Errorf("%d loads at a time", n)
		}
		between(t, "the second load ended", time.Since(began), 40*time.Second,
			40*time.Second+time.Second)
		first.gives(1, nil)

		if _, _, err := store.TakePermit(t.Context(), "database", cacheguard.ID{1}, 1,
			3*time.Second); err != nil {
			t.Fatal(err)
		}
		began = time.Now() // and its process dies
		if _, err := cs[1].Get(t.Context(), "after a death", returning(1)); err != nil {
			t.Fatal(err)
		}
		between(t, "the permit of a dead process is free", time.Since(began), 3*time.Second,
			3500*time.Millisecond)
	})
}

// A process that stood still when it was given a permit, for longer than that lasts, asks again.
func TestPermitThatIsOverIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		defer store.Store.Close()
		here, there := budgeted(t, store, 1, 1)[0], budgeted(t, store.Store, 1, 1)[0]
		o := ones(t, 20*time.Second)
		// This process stands still after the answer.
		store.past("TakePermit", func(context.Context) error {
			store.past("TakePermit", nil)
			<-time.After(10 * time.Second)
			return nil
		})
		late := getting(t.Context(), t, here, "late", o.Load("late"))
		synctest.Wait()
		other := getting(t.Context(), t, there, "other", o.Load("other"))
		<-late.done
		<-other.done
		if late.err != nil || other.err != nil {
			t.Errorf("%v, %v", late.err, other.err)
		}
		if n := o.MostRunning(); n != 1 {
			t.Errorf("%d loads at a time, with a budget of 1", n)
		}
	})
}

// A load begun inside a load takes no second permit, so there is no deadlock.
func TestNestedLoadTakesNoSecondPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := budgeted(t, store, 1, 1)[0]
		v, err := c.Get(t.Context(), "outer", func(ctx context.Context) (int, error) {
			return c.Get(ctx, "inner", returning(7))
		})
		if v != 7 || err != nil {
			t.Errorf("got %v, %v", v, err)
		}
	})
}

// If a caller leaves while it waits for a permit, it gets its context's error at once, and the
// callers behind it get their turn.
func TestWaitingForAPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		cs := budgeted(t, store, 2, 1)
		o := ones(t, 10*time.Second)
		first := getting(t.Context(), t, cs[0], "long", o.Load("long"))
		synctest.Wait()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := cs[1].Get(ctx, "leaves", o.Load("leaves")); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		second := getting(t.Context(), t, cs[1], "stays", returning(2))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		first.gives(1, nil)
		second.gives(2, nil)
		if n := o.Loads(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// While the store can't be used each process has the budget for itself.
func TestFleetBudgetWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		cs := budgeted(t, store, 2, 2)
		_ = store.Close()
		o := ones(t, time.Second)
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				if v, err := cs[i%2].Get(t.Context(), fmt.Sprint(i),
					o.Load(fmt.Sprint(i))); v != 1 || err != nil {
					t.Errorf("got %v, %v", v, err)
				}
			})
		}
		calls.Wait()
		if n := o.MostRunning(); n != 4 {
			t.Errorf("%d loads at a time in two processes with a budget of 2", n)
		}
	})
}

// A budget says that it can't be asked for where its cache says such things.
func TestFleetBudgetLogsWhereItsCacheDoes(t *testing.T) {
	store := memstore.New(memstore.Options{})
	l, err := cacheguard.NewFleetLimiter(store, "database", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c, err := cacheguard.New(store, cacheguard.Options[int]{
		Name: "logs", Limiter: l, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = store.Close()
	_, _ = c.Get(t.Context(), "k", func(context.Context) (int, error) { return 1, nil })
	_ = c.Close()
	if !strings.Contains(log.String(), "the fleet's budget can't be asked for") {
		t.Errorf("the cache's log has only:\n%s", &log)
	}
}

func TestNewFleetLimiter(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	for what, make := range map[string]func() (*cacheguard.Limiter, error){
		"no name": func() (*cacheguard.Limiter, error) {
			return cacheguard.NewFleetLimiter(store, "", 1, 0)
		},
		"a brace": func() (*cacheguard.Limiter, error) {
			return cacheguard.NewFleetLimiter(store, "a{b", 1, 0)
		},
		"no loads": func() (*cacheguard.Limiter, error) {
			return cacheguard.NewFleetLimiter(store, "a", 0, 0)
		},
		"no permits": func() (*cacheguard.Limiter, error) {
			return cacheguard.NewFleetLimiter(struct{ cacheguard.Store }{store}, "a", 1, 0)
		},
		"no store": func() (*cacheguard.Limiter, error) {
			return cacheguard.NewFleetLimiter(nil, "a", 1, 0)
		},
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

type farPermits struct {
	*memstore.Store
	trip time.Duration
}

func (s *farPermits) TakePermit(
	ctx context.Context, name string, token cacheguard.ID, max int, ttl time.Duration,
) (bool, time.Duration, error) {
	time.Sleep(s.trip / 2)
	defer time.Sleep(s.trip / 2)
	return s.Store.TakePermit(ctx, name, token, max, ttl)
}

// A process with many permits renews them all in time.
func TestManyPermitsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		cs := budgeted(t, cacheguard.Store(&farPermits{Store: shared, trip: 60 * time.Millisecond}),
			2, 64)
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

// A nil store from an ignored error is an error of New and of NewFleetLimiter.
func TestNewFleetLimiterOnNil(t *testing.T) {
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
