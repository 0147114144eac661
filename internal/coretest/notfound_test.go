package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestNotFound: "does not exist" is a result like any other. All waiting callers get it, and all
// callers within NegativeTTL.
func TestNotFound(t *testing.T) {
	for name, says := range map[string]error{
		"ErrNotFound": cacheguard.ErrNotFound,
		"wrapped":     fmt.Errorf("no such row: %w", cacheguard.ErrNotFound),
		"joined":      errors.Join(errOrigin, cacheguard.ErrNotFound),
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[string]{TTL: time.Hour}
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			o := newScriptedOrigin[string](t)
			callers := []*begun[cacheguard.Result[string]]{
				gettingResult(t.Context(), t, here, "k", o.load),
			}
			load := o.next()
			callers = append(callers, gettingResult(t.Context(), t, here, "k", o.load),
				gettingResult(t.Context(), t, there, "k", o.load))
			callers[2].waits()
			load.ends(func() (string, error) { return "ignored", says })
			for range 2 {
				for i, c := range callers {
					if r, err := c.now(); r.Value != "" || !r.NotFound ||
						!errors.Is(err, cacheguard.ErrNotFound) {
						t.Errorf("caller %d got %+v, %v", i, r, err)
					}
				}
				callers = []*begun[cacheguard.Result[string]]{
					gettingResult(t.Context(), t, here, "k", o.load),
					gettingResult(t.Context(), t, there, "k", o.load),
				}
			}
			if r, err := there.Peek(t.Context(), "k"); err != nil || !r.NotFound ||
				r.Status != cacheguard.StatusHit || r.FreshFor != 30*time.Second {
				t.Errorf("Peek: %+v, %v; want the null sentinel for 30s", r, err)
			}
			o.loads(1)

			<-time.After(30 * time.Second)
			getting(t.Context(), t, here, "k", returning("v")).gives("v", nil)
			getting(t.Context(), t, there, "k", o.load).gives("v", nil)
		})
	}
}

func TestNegativeTTL(t *testing.T) {
	inBubble(t, "short", func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}),
			cacheguard.Options[string]{NegativeTTL: 2 * time.Second})
		o := newScriptedOrigin[string](t)
		notFound := func() {
			call := getting(t.Context(), t, c, "k", o.load)
			o.next().fails(cacheguard.ErrNotFound)
			call.gives("", cacheguard.ErrNotFound)
		}
		notFound()
		<-time.After(2*time.Second - time.Millisecond)
		getting(t.Context(), t, c, "k", o.load).gives("", cacheguard.ErrNotFound)
		<-time.After(time.Millisecond)
		notFound()
	})
	inBubble(t, "off", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		opts := cacheguard.Options[string]{NegativeTTL: -1}
		here, there := openOn(t, store, opts), openOn(t, store, opts)
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiter := getting(t.Context(), t, there, "k", o.load)
		waiter.waits()
		load.fails(cacheguard.ErrNotFound)
		leader.gives("", cacheguard.ErrNotFound)
		waiter.gives("", cacheguard.ErrNotFound)
		o.loads(1)
		newcomer := getting(t.Context(), t, there, "k", o.load)
		o.next().gives("v")
		newcomer.gives("v", nil)
		if err := here.Set(t.Context(), "k", "w"); err != nil {
			t.Fatal(err)
		}
		gone := beginCall(t, func() (string, error) {
			return here.Update(t.Context(), "k", failingWith[string](cacheguard.ErrNotFound))
		})
		gone.gives("", cacheguard.ErrNotFound)
		if r, err := there.Peek(t.Context(), "k"); err != nil || r.Status != cacheguard.StatusMiss {
			t.Errorf("Peek: %+v, %v; want nothing", r, err)
		}
	})
	inBubble(t, "opt out", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[cacheguard.Entry[string]](t)
		leader := gettingEntry(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiter := gettingEntry(t.Context(), t, there, "k", o.load)
		waiter.waits()
		load.ends(func() (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{NoStore: true}, cacheguard.ErrNotFound
		})
		for _, call := range []*begun[cacheguard.Result[string]]{leader, waiter} {
			if r, err := call.now(); !r.NotFound || !errors.Is(err, cacheguard.ErrNotFound) {
				t.Errorf("a caller got %+v, %v", r, err)
			}
		}
		newcomer := gettingEntry(t.Context(), t, here, "k", o.load)
		o.next().ends(func() (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{TTL: 5 * time.Second}, cacheguard.ErrNotFound
		})
		newcomer.now()
		if r, err := there.Peek(t.Context(), "k"); err != nil || !r.NotFound ||
			r.FreshFor != 5*time.Second {
			t.Errorf("Peek: %+v, %v; want the null sentinel for 5s", r, err)
		}
	})
}

// TestEmpty: a value that means "does not exist" is never seen again, by nobody.
func TestEmpty(t *testing.T) {
	type categories = map[string]int
	empty := func(m categories) bool { return len(m) == 0 }
	for name, value := range map[string]categories{"nil": nil, "empty": {}} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts := cacheguard.Options[categories]{Empty: empty}
			here, there := openOn(t, store, opts), openOn(t, store, opts)
			check := func(who string, v categories, err error) {
				t.Helper()
				if v != nil || !errors.Is(err, cacheguard.ErrNotFound) {
					t.Errorf("the %s got %#v, %v; want nil, %v", who, v, err,
						cacheguard.ErrNotFound)
				}
			}
			checkCall := func(who string, c *begun[categories]) {
				t.Helper()
				v, err := c.now()
				check(who, v, err)
			}
			o := newScriptedOrigin[categories](t)
			leader := getting(t.Context(), t, here, "k", o.load)
			load := o.next()
			joiner := getting(t.Context(), t, here, "k", o.load)
			waiter := getting(t.Context(), t, there, "k", o.load)
			joiner.waits()
			waiter.waits()
			load.gives(value)
			checkCall("leader", leader)
			checkCall("joiner", joiner)
			checkCall("waiter", waiter)
			checkCall("later caller", getting(t.Context(), t, here, "k", o.load))
			checkCall("later caller elsewhere", getting(t.Context(), t, there, "k", o.load))
			o.loads(1)
			v, err := here.Refresh(t.Context(), "k", returning(value))
			check("refresher", v, err)
			v, err = here.Update(t.Context(), "updated", returning(value))
			check("writer", v, err)
			if err := here.Set(t.Context(), "set", value); err != nil {
				t.Errorf("Set: %v", err)
			}
			for _, key := range []string{"updated", "set"} {
				v, err = there.Get(t.Context(), key, o.load)
				check("reader of what was written", v, err)
			}
			r, err := here.GetEntry(t.Context(), "entry", func(
				context.Context, cacheguard.Result[categories],
			) (cacheguard.Entry[categories], error) {
				return cacheguard.Entry[categories]{Value: value}, nil
			})
			check("caller of GetEntry", r.Value, err)
			o.loads(1)
			full := categories{"a": 1}
			getting(t.Context(), t, here, "full", returning(full)).gives(full, nil)
			getting(t.Context(), t, there, "full", o.load).gives(full, nil)
		})
	}
}

// TestNotFoundThatIsLookedUpOften never reaches the origin again, which is what penetration would
// be.
func TestNotFoundThatIsLookedUpOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := guardtest.NewFleet(t, 2, cacheguard.Options[string]{})
		o := guardtest.NewOrigin(t, func(string) string { return "" })
		o.Inject(guardtest.Fault{Err: cacheguard.ErrNotFound})
		for i := range 1000 {
			if _, err := fleet.Replica(i%2).Get(t.Context(), "k", o.Load("k")); !errors.Is(err,
				cacheguard.ErrNotFound) {
				t.Fatalf("Get: %v", err)
			}
		}
		if n := o.Loads(); n != 1 {
			t.Errorf("there were %d loads", n)
		}
	})
}
