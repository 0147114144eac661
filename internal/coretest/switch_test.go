package coretest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/logtest"
)

// comparisons are the events of what was compared.
type comparisons struct {
	mu   sync.Mutex // guards seen
	seen []cacheguard.Event
}

func (o *comparisons) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == cacheguard.EventCompared {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen = append(o.seen, e)
	}
}

// found checks what was compared since it was asked last, and with what result.
func (o *comparisons) found(t *testing.T, want ...cacheguard.Difference) {
	t.Helper()
	<-time.After(2 * time.Second) // above Audit.Settle
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	var got []cacheguard.Difference
	for _, e := range o.seen {
		got = append(got, e.Differs)
	}
	o.seen = nil
	if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
		t.Errorf("compared: %q; want %q", got, want)
	}
}

func turn(t *testing.T, s *cacheguard.Switch, m cacheguard.Mode) {
	t.Helper()
	must(t, s.Set(m))
}

// TestSwitchedOff: every call is answered by a load of its own process, which stores nothing. When
// the switch is on again, the cache behaves as if it had always been on.
func TestSwitchedOff(t *testing.T) {
	for name, local := range map[string]int{"without a local tier": 0, "with a local tier": 100} {
		inBubble(t, name, func(t *testing.T) {
			store, sw := newTampered(), new(cacheguard.Switch)
			defer store.Close()
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{
				Switch: sw, MaxLoads: 2, StaleIfError: time.Hour,
				Local: cacheguard.Local[int]{Entries: local},
			})
			getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
			getting(t.Context(), t, c, "k", returning(2)).gives(1, nil)
			asked := func() (n int) {
				for _, step := range []string{
					"Get", "GetMany", "Lease", "LeaseMany", "Fill", "FillMany",
				} {
					n += store.steps(step)
				}
				return n
			}
			before := asked()
			turn(t, sw, cacheguard.ModeOff)

			getting(t.Context(), t, c, "k", returning(2)).gives(2, nil)
			res, err := gettingEntry(t.Context(), t, c, "k",
				returning(cacheguard.Entry[int]{Value: 3})).now()
			if want := (cacheguard.Result[int]{
				Value: 3, Status: cacheguard.StatusLoaded,
			}); res != want || err != nil {
				t.Errorf("GetEntry gave %+v, %v; want %+v", res, err, want)
			}
			_, err = c.GetEntry(t.Context(), "k", func(
				_ context.Context, prev cacheguard.Result[int],
			) (cacheguard.Entry[int], error) {
				if prev.Status != cacheguard.StatusMiss || !prev.Degraded {
					t.Errorf("a load saw %+v as its previous value", prev)
				}
				return cacheguard.Entry[int]{NotModified: true}, nil
			})
			if err == nil {
				t.Error("what was not seen counts as not modified")
			}
			many, err := c.GetMany(t.Context(), []string{"k", "l"}, func(
				_ context.Context, missing []string,
			) (map[string]int, error) {
				return map[string]int{"k": 4, "l": len(missing)}, nil
			})
			if many["k"] != 4 || many["l"] != 2 || err != nil {
				t.Errorf("GetMany gave %v, %v", many, err)
			}
			if v, err := c.Refresh(t.Context(), "k", returning(5)); v != 5 || err != nil {
				t.Errorf("Refresh gave %v, %v", v, err)
			}
			if res, err := c.Peek(t.Context(), "k"); res.Status != cacheguard.StatusMiss ||
				err != nil {
				t.Errorf("Peek found %+v, %v", res, err)
			}
			if res, ok := c.Local("k"); ok {
				t.Errorf("Local found %+v", res)
			}

			// Those who come together have one load, and no more keys are loaded at a time than
			// MaxLoads allows.
			o := newScriptedOrigin[int](t)
			var all []*begun[int]
			for range 50 {
				all = append(all, getting(t.Context(), t, c, "a", o.load),
					getting(t.Context(), t, c, "b", o.load),
					getting(t.Context(), t, c, "c", o.load))
			}
			o.next().gives(7)
			o.next().gives(7)
			o.next().gives(7)
			for _, one := range all {
				one.gives(7, nil)
			}
			o.loads(3)
			crowd := getting(t.Context(), t, c, "a", o.load)
			first := o.next()
			getting(t.Context(), t, c, "b", o.load)
			getting(t.Context(), t, c, "c", o.load)
			second := o.next()
			o.idle()
			// An error is for who has waited for it, and a stale value for nobody.
			boom := errors.New("boom")
			first.fails(boom)
			if _, err := crowd.now(); !errors.Is(err, boom) {
				t.Errorf("the load's error came as %v", err)
			}
			o.next().gives(1) // which had to wait until now
			second.gives(1)
			getting(t.Context(), t, c, "a", returning(8)).gives(8, nil)
			if now := asked(); now != before {
				t.Errorf("the store was asked %d times while the switch was off", now-before)
			}
			if s := c.Stats(); s.SwitchedOff != 1 || s.InShadow != 0 {
				t.Errorf("Stats say %+v", s)
			}

			turn(t, sw, cacheguard.ModeOn)
			getting(t.Context(), t, c, "k", returning(9)).gives(1, nil)
			turn(t, sw, cacheguard.ModeOff)
			must(t, c.Invalidate(t.Context(), "k"))
			must(t, c.Set(t.Context(), "l", 11))
			turn(t, sw, cacheguard.ModeOn)
			getting(t.Context(), t, c, "k", returning(10)).gives(10, nil)
			getting(t.Context(), t, c, "l", returning(12)).gives(11, nil)
		})
	}
}

// If a call begins after the switch was set, it doesn't get a value that was found before, even if
// other calls wait for that value.
func TestSwitchedOffDuringALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, sw := memstore.New(memstore.Options{}), new(cacheguard.Switch)
		defer memory.Close()
		store := &slowRead{Store: memory}
		c := openLookingFirst(t, cacheguard.Store(store), cacheguard.Options[int]{Switch: sw})
		must(t, c.Set(t.Context(), "k", 1))
		store.took.Store(int64(time.Minute))
		before := getting(t.Context(), t, c, "k", returning(2))
		synctest.Wait()
		turn(t, sw, cacheguard.ModeOff)
		getting(t.Context(), t, c, "k", returning(3)).gives(3, nil)
		if before.returned() {
			t.Error("the look-up is over already")
		}
		<-time.After(time.Minute)
		before.gives(1, nil)
	})
}

// The store isn't asked for its clock either, nor by what a load asks of other caches.
func TestSwitchedOffWithAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sw := newTampered(), new(cacheguard.Switch)
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Switch: sw})
		inner := openOn(t, cacheguard.Store(store),
			cacheguard.Options[int]{Name: "inner", Switch: sw})
		must(t, c.Set(t.Context(), "k", 1))
		must(t, inner.Set(t.Context(), "k", 1))
		// For which the store would be asked.
		token := tokenAt(t, time.Now().Add(200*time.Millisecond))
		turn(t, sw, cacheguard.ModeOff)
		for _, step := range []string{"Get", "Lease", "Clock"} {
			store.onto(step, func(context.Context) error {
				t.Errorf("the store is asked: %s", step)
				return errTampered
			})
		}
		getting(cacheguard.NotOlderThan(t.Context(), token), t, c, "k", func(
			ctx context.Context,
		) (int, error) {
			return inner.Get(ctx, "k", returning(2))
		}).gives(2, nil)
	})
}

// A function Same that panics says nothing, and nobody is told that something differs.
func TestSameThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sw, o := memstore.New(memstore.Options{}), new(cacheguard.Switch), &comparisons{}
		defer store.Close()
		c := openOn(t, cacheguard.Store(store),
			cacheguard.Options[int]{Switch: sw, Observer: o, Same: func(a, b int) bool {
				panic("no")
			}})
		turn(t, sw, cacheguard.ModeShadow)
		getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
		getting(t.Context(), t, c, "k", returning(2)).gives(2, nil)
		o.found(t)
	})
}

// TestSwitchInShadow: callers get what loads of their process return, and the cache works beside
// it.
func TestSwitchInShadow(t *testing.T) {
	for name, local := range map[string]int{"without a local tier": 0, "with a local tier": 100} {
		inBubble(t, name, func(t *testing.T) {
			store, sw, o := newTampered(), new(cacheguard.Switch), &comparisons{}
			defer store.Close()
			opts := cacheguard.Options[int]{
				Switch: sw, Observer: o, TTL: time.Hour, OnStoreDown: cacheguard.FailClosed,
				Local: cacheguard.Local[int]{Entries: local},
			}
			c := openOn(t, cacheguard.Store(store), opts)
			opts.Switch, opts.Observer = nil, nil
			other := openOn(t, cacheguard.Store(store), opts)
			turn(t, sw, cacheguard.ModeShadow)
			if s := c.Stats(); s.SwitchedOff != 0 || s.InShadow != 1 {
				t.Errorf("Stats say %+v", s)
			}

			// Nothing is there: the load's result is stored, and others have it.
			getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
			getting(t.Context(), t, other, "k", returning(2)).gives(1, nil)
			o.found(t)
			// It is there: not for callers.
			getting(t.Context(), t, c, "k", returning(1)).gives(1, nil)
			o.found(t, 0)
			getting(t.Context(), t, c, "k", returning(2)).gives(2, nil)
			o.found(t, cacheguard.DiffersMissed)
			if res, err := c.Peek(t.Context(), "k"); res.Status != cacheguard.StatusMiss ||
				err != nil {
				t.Errorf("Peek found %+v, %v", res, err)
			}
			// What isn't there any more soon after was being changed.
			getting(t.Context(), t, c, "k", returning(3)).gives(3, nil)
			must(t, other.Invalidate(t.Context(), "k"))
			o.found(t, cacheguard.DiffersMeanwhile)
			getting(t.Context(), t, c, "k", failingWith[int](cacheguard.ErrNotFound)).gives(0,
				cacheguard.ErrNotFound)
			getting(t.Context(), t, c, "k", failingWith[int](cacheguard.ErrNotFound)).gives(0,
				cacheguard.ErrNotFound)
			o.found(t, 0)
			getting(t.Context(), t, c, "k", returning(4)).gives(4, nil)
			o.found(t, cacheguard.DiffersMissed)
			// An origin that fails says nothing.
			getting(t.Context(), t, c, "k", failingWith[int](errOrigin)).gives(0, errOrigin)
			o.found(t)

			// In a batch: one key is there, the other isn't.
			must(t, other.Set(t.Context(), "k", 1))
			many, err := c.GetMany(t.Context(), []string{"k", "l"}, func(
				_ context.Context, missing []string,
			) (map[string]int, error) {
				if len(missing) != 1 {
					t.Errorf("loaded together: %q; results of which only one is stored aren't",
						missing)
				}
				return map[string]int{"k": 5, "l": 6}, nil
			})
			if many["k"] != 5 || many["l"] != 6 || err != nil {
				t.Errorf("GetMany gave %v, %v", many, err)
			}
			getting(t.Context(), t, other, "l", returning(7)).gives(6, nil)
			o.found(t, cacheguard.DiffersMissed)

			// Another process loads: nobody here waits for it.
			origin := newScriptedOrigin[int](t)
			holder := getting(t.Context(), t, other, "m", origin.load)
			load := origin.next()
			getting(t.Context(), t, c, "m", returning(8)).gives(8, nil)
			load.fails(errOrigin)
			_, _ = holder.now()
			// Nor is its error remembered here.
			getting(t.Context(), t, c, "m", returning(9)).gives(9, nil)

			// What is stale isn't shown to the load that takes its place.
			must(t,
				other.SetEntry(t.Context(), "s",
					cacheguard.Entry[int]{Value: 1, TTL: time.Second, Keep: time.Hour}))
			<-time.After(2 * time.Second)
			_, err = c.GetEntry(t.Context(), "s", func(
				_ context.Context, prev cacheguard.Result[int],
			) (cacheguard.Entry[int], error) {
				if prev.Status != cacheguard.StatusMiss || prev.Degraded {
					t.Errorf("a load saw %+v as its previous value", prev)
				}
				return cacheguard.Entry[int]{Value: 2}, nil
			})
			must(t, err)
			getting(t.Context(), t, other, "s", returning(3)).gives(2, nil)

			// Without the store, too, although the cache fails closed.
			for _, step := range []string{"Get", "Lease"} {
				store.onto(step, fails(always))
			}
			getting(t.Context(), t, c, "k", returning(10)).gives(10, nil)
			getting(t.Context(), t, c, "n", returning(11)).gives(11, nil)
			store.onto("Get", nil)
			store.onto("Lease", nil)
			turn(t, sw, cacheguard.ModeOn)
			getting(t.Context(), t, c, "k", returning(12)).gives(1, nil)
		})
	}
}

// What comes between the look-up and the question for the lease isn't taken, either.
func TestSwitchInShadowDuringTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, sw := memstore.New(memstore.Options{}), new(cacheguard.Switch)
		defer memory.Close()
		store, gate := &gatedLease{Store: memory}, make(chan struct{})
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Switch: sw})
		other := openOn(t, cacheguard.Store(memory), cacheguard.Options[int]{})
		turn(t, sw, cacheguard.ModeShadow)
		store.gate.Store(&gate)
		call := getting(t.Context(), t, c, "k", returning(1))
		synctest.Wait()
		must(t, other.Set(t.Context(), "k", 2))
		close(gate)
		call.gives(1, nil)
		getting(t.Context(), t, other, "k", returning(3)).gives(2, nil)
	})
}

// TestSwitchFlips a thousand times under load: nobody gets an error, or what was changed before the
// call.
func TestSwitchFlips(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	flipSwitch(t, store)
}

// flipSwitch has processes read and change keys on a store, and sets the switch of one of them in
// the midst of it.
func flipSwitch(t *testing.T, store cacheguard.Store) {
	t.Helper()
	const flips = 1000
	type key struct {
		name   string
		origin atomic.Int64
		said   [2]atomic.Int64 // which changes of each process had returned
	}
	keys := []*key{{name: "a"}, {name: "b"}}
	sw := new(cacheguard.Switch)
	var caches [2]*cacheguard.Cache[int]
	for p := range caches {
		opts := cacheguard.Options[int]{Local: cacheguard.Local[int]{Entries: 100}}
		if p == 0 {
			opts.Switch = sw
		}
		caches[p] = openOn(t, store, opts)
	}
	read := func(p int, k *key, c *cacheguard.Cache[int]) {
		load := func(context.Context) (int, error) { return int(k.origin.Load()), nil }
		many := func(_ context.Context, missing []string) (map[string]int, error) {
			return map[string]int{k.name: int(k.origin.Load())}, nil
		}
		for name, get := range map[string]func() (int, error){
			"Get":     func() (int, error) { return c.Get(t.Context(), k.name, load) },
			"Refresh": func() (int, error) { return c.Refresh(t.Context(), k.name, load) },
			"GetMany": func() (int, error) {
				got, err := c.GetMany(t.Context(), []string{k.name}, many)
				return got[k.name], err
			},
		} {
			mode, least := sw.Mode(), int(k.said[p].Load())
			if v, err := get(); err != nil || v < least {
				t.Errorf("process %d, %v: %s gave %d, %v; a change to %d had returned", p, mode,
					name, v, err, least)
			}
		}
	}
	change := func(p int, k *key, c *cacheguard.Cache[int]) {
		v := k.origin.Add(1)
		if err := c.Invalidate(t.Context(), k.name); err != nil {
			t.Errorf("Invalidate: %v", err)
		}
		for last := k.said[p].Load(); v > last &&
			!k.said[p].CompareAndSwap(last, v); last = k.said[p].Load() {
		}
	}
	for n := range flips {
		var working sync.WaitGroup
		for _, k := range keys {
			for p, c := range caches {
				working.Go(func() { read(p, k, c) })
				working.Go(func() { change(p, k, c) })
				working.Go(func() { read(p, k, c) })
			}
		}
		turn(t, sw, cacheguard.Mode(n%3))
		if working.Wait(); t.Failed() {
			return
		}
	}
}

func TestSwitchModes(t *testing.T) {
	var said logtest.Lines
	store := memstore.New(memstore.Options{})
	defer store.Close()
	sw := new(cacheguard.Switch)
	open := func(name string) *cacheguard.Cache[int] {
		return openOn(t, cacheguard.Store(store),
			cacheguard.Options[int]{Name: name, Switch: sw, Logger: said.Logger()})
	}
	gone := open("gone")
	open("one")
	_ = gone.Close()
	for _, text := range []string{"off", "off", "shadow"} {
		mode, err := cacheguard.ParseMode(text)
		if err != nil || mode.String() != text {
			t.Fatalf("%q is the mode %v, %v", text, mode, err)
		}
		turn(t, sw, mode)
	}
	open("late")
	turn(t, sw, cacheguard.ModeOn)
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(said.String()), "\n") {
		var kept []string
		for _, part := range strings.Fields(line) {
			if strings.HasPrefix(part, "cache=") || strings.HasPrefix(part, "mode=") ||
				strings.HasPrefix(part, "level=") {
				kept = append(kept, part)
			}
		}
		got = append(got, strings.Join(kept, " "))
	}
	want := []string{
		"level=WARN cache=one mode=off", "level=WARN cache=one mode=shadow",
		"level=WARN cache=late mode=shadow",
		"level=INFO cache=one", "level=INFO cache=late",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("said:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, bad := range []string{"", "ON", "aus", strings.Repeat("x", 1000)} {
		if m, err := cacheguard.ParseMode(bad); err == nil || len(err.Error()) > 100 {
			t.Errorf("%.20q is the mode %v, %v", bad, m, err)
		}
	}
	if err := sw.Set(3); err == nil || !strings.Contains(err.Error(), "3") ||
		sw.Mode() != cacheguard.ModeOn {
		t.Errorf("Set of a mode that is none: %v, and the mode is %v", err, sw.Mode())
	}
}
