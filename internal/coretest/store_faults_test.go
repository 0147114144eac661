package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A step of the store can fail before or after it was carried out, once or as long as the store is
// down. The load can end in any way, before or after the end of its first lease. In all these cases
// every caller must get an answer, and no lease may stay beyond its time, no slot may stay taken,
// and no goroutine may be left.

var faultySteps = []string{"Get", "Lease", "Renew", "Fill", "Conclude", "Release"}

var endings = map[string]struct {
	end   func() (string, error)
	value string
	err   error // of the load, in its own process
}{
	"value": {func() (string, error) { return "v", nil }, "v", nil},
	"large": {
		func() (string, error) {
			return string(make([]byte, 10<<10)), nil
		}, string(make([]byte, 10<<10)), nil,
	},
	"not found": {
		func() (string, error) { return "", cacheguard.ErrNotFound }, "", cacheguard.ErrNotFound,
	},
	"error":     {func() (string, error) { return "", errOrigin }, "", errOrigin},
	"panic":     {func() (string, error) { panic(errOrigin) }, "", errOrigin},
	"Goexit":    {func() (string, error) { runtime.Goexit(); return "", nil }, "", nil},
	"abandoned": {nil, "", context.Canceled},
}

func TestFaultyStore(t *testing.T) {
	for _, step := range faultySteps {
		for _, when := range []string{"not done", "reply lost"} {
			for _, often := range []int{1, 2, always} {
				for ending := range endings {
					for _, long := range []bool{false, true} {
						name := fmt.Sprintf("%s %s/%d times/%s/long %v", step, when, often, ending,
							long)
						inBubble(t, name, func(t *testing.T) {
							faultyStore(t, step, when, often, ending, long)
						})
					}
				}
			}
		}
	}
}

func faultyStore(t *testing.T, step, when string, often int, ending string, long bool) {
	store := newTampered()
	opts := cacheguard.Options[string]{MaxLoads: 2, ErrorTTL: -1}
	c, other := openOn(t, store, opts), openOn(t, store.Store, opts)
	if when == "not done" {
		store.onto(step, fails(often))
	} else {
		store.past(step, fails(often))
	}
	o, elsewhere := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	leader := getting(ctx, t, c, "k", o.load)
	load := o.next()
	joiner := getting(ctx, t, c, "k", o.load)
	joiner.waits()
	waiter := getting(t.Context(), t, other, "k", elsewhere.load)
	waiter.waits() // or it loads: the store did not give this load a lease
	if long {
		<-time.After(7 * time.Second)
	}
	e := endings[ending]
	if e.end != nil {
		load.ends(e.end)
	} else {
		leave()
	}

	// The callers of the load are not told of the store's trouble, nor made to wait for it.
	for _, call := range []*begun[string]{leader, joiner} {
		v, err := call.now()
		if v != e.value || (e.err != nil && !errors.Is(err, e.err)) ||
			(ending == "Goexit" && err == nil) || (e.value != "" && err != nil) {
			t.Errorf("a caller got %d bytes, %v; want %d bytes, %v", len(v), err, len(e.value),
				e.err)
		}
	}

	// The waiter hears of it, finds it out or takes over, within the time of a lease.
	ended := time.Now()
	for !waiter.returned() && time.Since(ended) < 4*time.Second {
		if len(elsewhere.visits) > 0 {
			(<-elsewhere.visits).gives("elsewhere")
		}
		<-time.After(10 * time.Millisecond)
	}
	if v, err := waiter.now(); errors.Is(err, context.Canceled) ||
		(err == nil && v != e.value && v != "elsewhere") {
		t.Errorf("the waiter got %d bytes, %v", len(v), err)
	}

	// The store works again.
	store.onto(step, nil)
	store.past(step, nil)
	if often < always && step != "Renew" && time.Since(ended) > time.Second {
		t.Errorf("the waiter waited for %v after a fault that was soon over", time.Since(ended))
	}
	for !leaseFree(t, store.Store, "k") {
		if time.Since(ended) > 4*time.Second {
			t.Fatal("the lease outlives its time")
		}
		<-time.After(10 * time.Millisecond)
	}
	slotsAreFree(t, c, 2)
	slotsAreFree(t, other, 2)
	next := getting(t.Context(), t, c, "another", returning("v"))
	next.gives("v", nil)
	if r, err := c.GetResult(t.Context(), "another",
		failingWith[string](errOrigin)); r.Status != cacheguard.StatusHit || err != nil {
		t.Errorf("normal service has not resumed: %+v, %v", r, err)
	}
}

// TestStoreIsDown: calls are served by loads that are coalesced in this process, or not at all.
func TestStoreIsDown(t *testing.T) {
	for _, step := range []string{"Get", "Lease"} {
		inBubble(t, step+" fails open", func(t *testing.T) {
			store := newTampered()
			store.onto(step, fails(always))
			c := openOn(t, store, cacheguard.Options[string]{MaxLoads: 1})
			o := newScriptedOrigin[string](t)
			var calls []*begun[cacheguard.Result[string]]
			for range 5 {
				calls = append(calls, gettingResult(t.Context(), t, c, "k", o.load))
			}
			load := o.next()
			other := getting(t.Context(), t, c, "other", o.load)
			o.idle() // within MaxLoads, also now
			load.gives("v")
			for _, call := range calls {
				if r, err := call.now(); r.Value != "v" || !r.Degraded || r.FreshFor != 0 ||
					err != nil {
					t.Errorf("a caller got %+v, %v", r, err)
				}
			}
			o.next().fails(errOrigin)
			other.gives("", errOrigin)
			newcomer := gettingResult(t.Context(), t, c, "k", o.load)
			o.next().fails(fmt.Errorf("wrapped: %w", cacheguard.ErrNotFound))
			if r, err := newcomer.now(); !r.NotFound || !r.Degraded ||
				!errors.Is(err, cacheguard.ErrNotFound) {
				t.Errorf("a newcomer got %+v, %v", r, err)
			}
			if n := store.steps("Fill") + store.steps("Conclude"); n > 0 {
				t.Errorf("what was loaded without a lease was stored or told %d times", n)
			}
			store.onto(step, nil)
			getting(t.Context(), t, c, "k", returning("w")).gives("w", nil)
			getting(t.Context(), t, c, "k", o.load).gives("w", nil)
		})
		inBubble(t, step+" fails closed", func(t *testing.T) {
			store := newTampered()
			c := openLookingFirst(t, store,
				cacheguard.Options[string]{OnStoreDown: cacheguard.FailClosed})
			store.onto(step, fails(always))
			load := func(context.Context) (string, error) { t.Error("it loads"); return "", nil }
			call := gettingResult(t.Context(), t, c, "k", load)
			if r, err := call.now(); !r.Degraded || !errors.Is(err, cacheguard.ErrUnavailable) ||
				!errors.Is(err, errTampered) {
				t.Errorf("Get: %+v, %v; want %v", r, err, cacheguard.ErrUnavailable)
			}
			beginCall(t, func() (string, error) {
				return c.Refresh(t.Context(), "k", load)
			}).gives("", cacheguard.ErrUnavailable)
			store.onto(step, nil)
			slotsAreFree(t, c, 64)
			getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
		})
	}
	inBubble(t, "Peek", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.onto("Get", fails(1))
		if r, err := c.Peek(t.Context(), "k"); !r.Degraded ||
			!errors.Is(err, cacheguard.ErrUnavailable) || !errors.Is(err, errTampered) {
			t.Errorf("Peek: %+v, %v; want %v", r, err, cacheguard.ErrUnavailable)
		}
	})
}

// TestLoadWithoutALease stores nothing: it can't know whether the key was changed meanwhile.
func TestLoadWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store.Store, cacheguard.Options[string]{})
		store.onto("Get", fails(1))
		o := newScriptedOrigin[string](t)
		degraded := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		if err := other.Set(t.Context(), "k", "new"); err != nil {
			t.Fatal(err)
		}
		load.gives("old")
		degraded.gives("old", nil)
		getting(t.Context(), t, c, "k", o.load).gives("new", nil)
	})
}

// TestRenewalsKeepALongLoadAlone: as long as a load runs, and until LoadTimeout at most, no other
// load of the key begins.
func TestRenewalsKeepALongLoadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{LoadTimeout: 25 * time.Second}
		c, other := openOn(t, store, opts), openOn(t, store.Store, opts)
		o, elsewhere := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, c, "k", o.stubborn)
		load := o.next()
		waiter := getting(t.Context(), t, other, "k", elsewhere.load)
		for range 8 {
			store.onto("Renew", fails(3)) // within the time of the lease it is tried again
			<-time.After(3 * time.Second)
			elsewhere.idle()
		}
		if _, err := leader.later(); !errors.Is(err, context.DeadlineExceeded) ||
			leader.took != 25*time.Second {
			t.Errorf("the leader got %v after %v", err, leader.took)
		}
		_, err := waiter.now()
		isLoadError(t, err,
			"cacheguard: load took longer than LoadTimeout of 25s: context deadline exceeded")
		load.gives("late")
		elsewhere.idle()
	})
}

// Where a fill failed, those who wait in other processes get the result all the same, and needn't
// load it.
func TestResultOfAnUnknownFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store.Store, cacheguard.Options[string]{})
		store.onto("Fill", fails(1))
		o := newScriptedOrigin[string](t)
		own := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		waits := getting(t.Context(), t, other, "k", func(context.Context) (string, error) {
			t.Error("it loads")
			return "own", nil
		})
		synctest.Wait()
		load.gives("v")
		own.gives("v", nil)
		waits.gives("v", nil)
	})
}

// The caller of a load learns that it is not known whether its result was stored.
func TestResultOfAnUnknownFillIsDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		store.onto("Fill", fails(1))
		if r, err := gettingResult(t.Context(), t, c, "k", returning("v")).now(); r.Value != "v" ||
			!r.Degraded || err != nil {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// An answer of a kind that this program doesn't know is none.
func TestUnknownLeaseAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		store.lease = func(ans cacheguard.LeaseAnswer) cacheguard.LeaseAnswer {
			ans.State = 200
			return ans
		}
		c := openOn(t, store, cacheguard.Options[string]{})
		res, err := gettingResult(t.Context(), t, c, "k", returning("v")).later()
		if res.Value != "v" || !res.Degraded || err != nil {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

// If too many reads of the store wait, Peek returns this error. The store is not in trouble, so the
// next call asks for the lease at once.
func TestPeekWhileTooManyReadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		var mu sync.Mutex // guards errs
		var errs []error
		c := openOn(t, store,
			cacheguard.Options[string]{Observer: observing(func(e cacheguard.Event) {
				if e.Kind == cacheguard.EventStoreError {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, e.Err)
				}
			})})
		store.onto("Get", func(context.Context) error {
			return fmt.Errorf("full: %w", cacheguard.ErrOverloaded)
		})
		if r, err := c.Peek(t.Context(), "k"); !errors.Is(err, cacheguard.ErrOverloaded) ||
			errors.Is(err, cacheguard.ErrUnavailable) || r.Status != cacheguard.StatusMiss {
			t.Errorf("Peek: %+v, %v; want only %v", r, err, cacheguard.ErrOverloaded)
		}
		gets := store.steps("Get")
		getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
		if n := store.steps("Get") - gets; n != 0 || len(errs) > 0 {
			t.Errorf("%d reads, store errors %v; want none", n, errs)
		}
	})
}
