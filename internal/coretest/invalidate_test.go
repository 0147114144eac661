package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A load that reads the origin, an invalidation, and a load after it can overlap in many ways. In
// all of them the value of the later load is stored in the end.

// meeting is where an invalidation meets a load that has begun before.
type meeting struct {
	step  string // of the load, at which it is held up
	past  bool   // the store has done the step, the process doesn't know yet
	fills bool   // the load is on its way to store what it read
}

var meetings = map[string]meeting{
	"before the look-up": {step: "Get"},
	"after the look-up":  {step: "Get", past: true},
	"before the grant":   {step: "Lease"},
	"after the grant":    {step: "Lease", past: true},
	"during the load":    {},
	"before the fill":    {step: "Fill", fills: true},
	"after the fill":     {step: "Fill", fills: true, past: true},
}

// TestInvalidateMeetsALoad in this process, made known by this process or by another one.
func TestInvalidateMeetsALoad(t *testing.T) {
	for name, m := range meetings {
		for _, by := range []string{"this process", "another process"} {
			for _, change := range []string{"Invalidate", "Set", "Update"} {
				inBubble(t, name+"/"+change+" by "+by, func(t *testing.T) {
					meet(t, m, by, change)
				})
			}
		}
	}
}

func meet(t *testing.T, m meeting, by, change string) {
	store := newTampered()
	c, other := openOn(t, store, cacheguard.Options[string]{}),
		openOn(t, store.Store, cacheguard.Options[string]{})
	o := newScriptedOrigin[string](t)
	held := make(chan struct{})
	hold := func(context.Context) error { <-held; return nil }
	if m.past {
		store.past(m.step, hold)
	} else {
		store.onto(m.step, hold)
	}
	origin := "old"
	early := getting(t.Context(), t, c, "k", func(ctx context.Context) (string, error) {
		read := origin
		if _, err := o.load(ctx); err != nil {
			return "", err
		}
		return read, nil
	})
	if m.fills {
		o.next().gives("")
	}
	early.waits()
	store.onto(m.step, nil) // it holds up nobody else
	store.past(m.step, nil)

	origin = "new"
	changing := c
	if by == "another process" {
		changing = other
	}
	switch change {
	case "Invalidate":
		if err := changing.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	case "Set":
		if err := changing.Set(t.Context(), "k", "new"); err != nil {
			t.Fatal(err)
		}
	case "Update":
		if v, err := changing.Update(t.Context(), "k", returning("new")); v != "new" || err != nil {
			t.Fatalf("Update: %q, %v", v, err)
		}
	}
	late := getting(t.Context(), t, c, "k", returning("new"))
	late.gives("new", nil)
	close(held)
	if !early.returned() {
		o.next().gives("")
	}
	if v, err := early.now(); err != nil || (v != "old" && v != "new") {
		t.Errorf("the early call got %q, %v", v, err)
	}
	for _, c := range []*cacheguard.Cache[string]{c, other} {
		getting(t.Context(), t, c, "k", returning("new")).gives("new", nil)
	}
}

// TestNobodyJoinsWhatBeganBefore: a call that starts after Invalidate has returned begins a new
// load, also while the old load goes on, and also if the store could not be told.
func TestNobodyJoinsWhatBeganBefore(t *testing.T) {
	for name, err := range map[string]error{"told": nil, "not told": errTampered} {
		for _, verb := range []string{"Get", "Refresh"} {
			inBubble(t, verb+" "+name, func(t *testing.T) {
				store := newTampered()
				c := openLookingFirst(t, store, cacheguard.Options[string]{})
				get := func(load cacheguard.LoadFunc[string]) *begun[string] {
					return beginCall(t, func() (string, error) {
						if verb == "Refresh" {
							return c.Refresh(t.Context(), "k", load)
						}
						return c.Get(t.Context(), "k", load)
					})
				}
				o := newScriptedOrigin[string](t)
				early := get(o.load)
				old := o.next()
				joiner := get(o.load)
				joiner.waits()
				store.onto("Invalidate", func(context.Context) error { return err })
				if got := c.Invalidate(t.Context(), "k"); !errors.Is(got, err) {
					t.Errorf("Invalidate: %v; want %v", got, err)
				}
				// What the store says of the old load doesn't matter here.
				store.onto("Lease", fails(1))
				late := get(o.load)
				young := o.next()
				if old.cancelled() {
					t.Error("the old load was cancelled although somebody waits for it")
				}
				old.gives("old")
				early.gives("old", nil)
				joiner.gives("old", nil)
				late.waits()
				young.gives("new")
				late.gives("new", nil)
			})
		}
	}
}

// TestChangeOnItsWay: a call begins while the store is being told of a change, and reads the old
// value. Callers that come after the change don't join this call. This also holds without the
// store's messages.
func TestChangeOnItsWay(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *cacheguard.Cache[string]) error{
		"Set": func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.Set(t.Context(), "k", "new")
		},
		"Invalidate": func(t *testing.T, c *cacheguard.Cache[string]) error {
			return c.Invalidate(t.Context(), "k")
		},
		"Update": func(t *testing.T, c *cacheguard.Cache[string]) error {
			_, err := c.Update(t.Context(), "k", returning("new"))
			return err
		},
		"Set of a large value": func(t *testing.T, c *cacheguard.Cache[string]) error {
			return setTooLarge(t.Context(), c)
		},
	} {
		step := "Claim"
		if name == "Invalidate" {
			step = name
		}
		inBubble(t, name, func(t *testing.T) {
			store := newTampered()
			c := openLookingFirst(t, &tamperedAndSilent{store},
				cacheguard.Options[string]{MaxValueSize: 100})
			if err := c.Set(t.Context(), "k", "old"); err != nil {
				t.Fatal(err)
			}
			changing, looking := make(chan struct{}), make(chan struct{})
			store.onto(step, func(context.Context) error { <-changing; return nil })
			store.past("Get", func(context.Context) error { <-looking; return nil })
			changed := beginCall(t, func() (struct{}, error) { return struct{}{}, change(t, c) })
			changed.waits()
			between := getting(t.Context(), t, c, "k", returning("unexpected"))
			between.waits()
			store.past("Get", nil)
			close(changing)
			changed.gives(struct{}{}, nil)
			getting(t.Context(), t, c, "k", returning("new")).gives("new", nil)
			close(looking)
			between.gives("old", nil)
		})
	}
}

// TestNobodyJoinsDuringAChange: a call that begins while the store is being told of a change joins
// no load from before the change. The store may be slow: without this rule, callers would get the
// old value for as long as the change is on its way, even after the store has carried it out and
// other processes have the new value. The rule holds without the store's messages, too.
func TestNobodyJoinsDuringAChange(t *testing.T) {
	for name, c := range map[string]struct {
		step   string // the first step of the change
		change func(ctx context.Context, c *cacheguard.Cache[string]) error
	}{
		"Invalidate": {"Invalidate", func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		}},
		"InvalidateAll": {"InvalidateTags", func(
			ctx context.Context, c *cacheguard.Cache[string],
		) error {
			return c.InvalidateAll(ctx)
		}},
		"MarkStale": {"MarkStale", func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStale(ctx, "k")
		}},
		"Set": {"Claim", func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Set(ctx, "k", "new")
		}},
		"Set of a large value": {"Claim", setTooLarge},
		"Update": {"Claim", func(ctx context.Context, c *cacheguard.Cache[string]) error {
			_, err := c.Update(ctx, "k", returning("new"))
			return err
		}},
	} {
		for _, carriedOut := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, carried out: %v", name, carriedOut), func(t *testing.T) {
				store := newTampered()
				here := openLookingFirst(t, &tamperedAndSilent{store},
					cacheguard.Options[string]{MaxValueSize: 100})
				o := newScriptedOrigin[string](t)
				early := getting(t.Context(), t, here, "k", o.load)
				old := o.next()
				answer := make(chan struct{})
				hold := func(context.Context) error { <-answer; return nil }
				if carriedOut {
					store.past(c.step, hold)
				} else {
					store.onto(c.step, hold)
				}
				changing := beginCall(t, func() (struct{}, error) {
					return struct{}{}, c.change(t.Context(), here)
				})
				changing.waits()
				during := getting(t.Context(), t, here, "k", returning("new"))
				during.returned()
				close(answer)
				changing.gives(struct{}{}, nil)
				old.gives("old")
				if v, err := early.later(); err != nil || (v != "old" && v != "new") {
					t.Errorf("the early call got %q, %v", v, err)
				}
				if v, err := during.later(); v != "new" || err != nil {
					t.Errorf("a call that began during the change got %q, %v", v, err)
				}
			})
		}
	}
}

// setTooLarge sets a value that can't be stored. That removes the value which is there.
func setTooLarge(ctx context.Context, c *cacheguard.Cache[string]) error {
	if err := c.Set(ctx, "k", strings.Repeat("x", 1000)); !errors.Is(err, cacheguard.ErrTooLarge) {
		return fmt.Errorf("want %v, got %w", cacheguard.ErrTooLarge, err)
	}
	return nil
}

// TestNobodyJoinsDuringAnUpdate: a call that begins when Update has stored its value joins no load
// that began while the store was being told of the Update. Callers in other processes may have the
// new value already, although Update hasn't returned.
func TestNobodyJoinsDuringAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openLookingFirst(t, &tamperedAndSilent{store}, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		told, answered := make(chan struct{}), make(chan struct{})
		store.onto("Claim", func(context.Context) error { <-told; return nil })
		store.past("Fill", func(context.Context) error { <-answered; return nil })
		update := updating(t.Context(), t, c, returning("new"))
		update.waits()
		between := getting(t.Context(), t, c, "k", o.load)
		old := o.next()
		close(told)
		update.waits()
		getting(t.Context(), t, c, "k", o.load).gives("new", nil)
		close(answered)
		update.gives("new", nil)
		old.gives("old")
		if v, err := between.later(); err != nil || (v != "old" && v != "new") {
			t.Errorf("the call in between got %q, %v", v, err)
		}
	})
}

type tamperedAndSilent struct{ *tampered }

func (*tamperedAndSilent) Listen(string, func(cacheguard.Message)) func() { return func() {} }

// TestLoadInvalidateLoad is one process that loads, invalidates and loads again while the first
// load still runs.
func TestLoadInvalidateLoad(t *testing.T) {
	for _, order := range []string{"old ends first", "new ends first"} {
		inBubble(t, order, func(t *testing.T) {
			c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
			o := newScriptedOrigin[string](t)
			early := getting(t.Context(), t, c, "k", o.load)
			old := o.next()
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			late := getting(t.Context(), t, c, "k", o.load)
			young := o.next()
			if order == "old ends first" {
				old.gives("old")
				early.gives("old", nil)
				young.gives("new")
				late.gives("new", nil)
			} else {
				young.gives("new")
				late.gives("new", nil)
				old.gives("old")
				early.gives("old", nil)
			}
			getting(t.Context(), t, c, "k", o.load).gives("new", nil)
			o.loads(2)
		})
	}
}

// TestUndisturbedFills: without changes no fill is refused.
func TestUndisturbedFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		filled, others := make(chan string, 1000), make(chan cacheguard.Event, 1000)
		opts := cacheguard.Options[string]{TTL: time.Minute,
			Observer: observing(func(e cacheguard.Event) {
				switch e.Kind {
				case cacheguard.EventFilled:
					filled <- e.Key
				case cacheguard.EventFillRefused, cacheguard.EventFillUnknown,
					cacheguard.EventNotStored, cacheguard.EventLeaseLost:
					others <- e
				}
			})}
		fleet := []*cacheguard.Cache[string]{
			openOn(t, store, opts), openOn(t, store, opts), openOn(t, store, opts),
		}
		slow := func(context.Context) (string, error) {
			<-time.After(10 * time.Second)
			return "v", nil
		}
		for range 50 {
			var calls []*begun[string]
			for _, c := range fleet {
				calls = append(calls, getting(t.Context(), t, c, "k", slow))
			}
			for _, call := range calls {
				call.later()
			}
			<-time.After(time.Minute)
		}
		if len(filled) != 50 || len(others) > 0 {
			t.Errorf("%d fills were stored, %d went wrong", len(filled), len(others))
		}
	})
}

// TestInvalidateManyKeys: all keys are invalidated. The error names the keys that failed, by the
// caller's names.
func TestInvalidateManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		long := string(make([]byte, 2000))
		keys := []string{"a", "b", long, ""}
		for _, key := range keys {
			if err := c.Set(t.Context(), key, "v"); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Invalidate(t.Context()); err != nil {
			t.Errorf("Invalidate of nothing: %v", err)
		}
		if err := c.Invalidate(t.Context(), keys...); err != nil {
			t.Errorf("Invalidate: %v", err)
		}
		for _, key := range keys {
			if r, err := c.Peek(t.Context(), key); r.Status != cacheguard.StatusMiss || err != nil {
				t.Errorf("%q is still there: %+v, %v", key, r, err)
			}
		}
		store.onto("Invalidate", fails(1))
		var failed cacheguard.KeyErrors
		if err := c.Invalidate(t.Context(), keys...); !errors.As(err, &failed) ||
			len(failed) != len(keys) {
			t.Errorf("Invalidate: %v; want all keys", err)
		}
		store.onto("Invalidate", func(context.Context) error {
			return cacheguard.KeyErrors{store.asked().Key: errTampered}
		})
		if err := c.Invalidate(t.Context(), long, "a"); !errors.As(err, &failed) ||
			len(failed) != 1 || !errors.Is(failed[long], errTampered) {
			t.Errorf("Invalidate: %v; want the long key alone", err)
		}
	})
}

// When messages may have been lost, nobody joins a load from before that.
func TestRestoredSealsFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		c := openLookingFirst(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		before := store.steps("Get")
		first := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		store.says(cacheguard.Message{Kind: cacheguard.MessageRestored})
		second := getting(t.Context(), t, c, "k", o.load)
		second.waits()
		if n := store.steps("Get") - before; n != 2 {
			t.Errorf("%d look-ups; the second caller has joined the first one's load", n)
		}
		load.gives("v")
		first.gives("v", nil)
		second.gives("v", nil)
	})
}

// Invalidate seals what has begun while the store was told of it, also if that failed.
func TestFailedInvalidateSeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openLookingFirst(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[string](t)
		before := store.steps("Get")
		var meanwhile *begun[string]
		var load *scriptedLoad[string]
		store.onto("Invalidate", func(context.Context) error {
			store.onto("Invalidate", nil)
			meanwhile = getting(context.Background(), t, c, "k", o.load)
			load = o.next()
			return errTampered
		})
		if err := c.Invalidate(t.Context(), "k"); err == nil {
			t.Error("Invalidate has not failed")
		}
		next := getting(t.Context(), t, c, "k", o.load)
		next.waits()
		if n := store.steps("Get") - before; n != 2 {
			t.Errorf("%d look-ups; the next caller has joined a load from before Invalidate returned",
				n)
		}
		load.gives("v") // which may be from before what the store could not be told of
		meanwhile.gives("v", nil)
		o.next().gives("w")
		next.gives("w", nil)
	})
}
