package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// auditing has a process whose hits are checked, a second process, and an origin.
type auditing[V any] struct {
	*testing.T
	comparisons
	memory *memstore.Store
	c      *cacheguard.Cache[V] // on a store that may have a defect
	other  *cacheguard.Cache[V]
	has    atomic.Pointer[V] // what the origin has; nil: nothing
	loads  atomic.Int64
	slow   time.Duration // loads
}

// audited begins an audit. The function defect makes the store of the audited process.
func audited[V any](
	t *testing.T, opts cacheguard.Options[V], defect func(cacheguard.Store) cacheguard.Store,
) *auditing[V] {
	a := &auditing[V]{T: t, memory: memstore.New(memstore.Options{})}
	t.Cleanup(func() { _ = a.memory.Close() })
	must(t, a.memory.Warm(t.Context()))
	opts.TTL, opts.NegativeTTL = time.Hour, time.Hour
	a.other = openOn(t, cacheguard.Store(a.memory), opts)
	opts.Observer = &a.comparisons
	if opts.Audit.PerSecond == 0 {
		opts.Audit.PerSecond = 1
	}
	a.c = openOn(t, defect(a.memory), opts)
	return a
}

func sound(s cacheguard.Store) cacheguard.Store { return s }

func (a *auditing[V]) load(context.Context) (v V, err error) {
	a.loads.Add(1)
	has := a.has.Load()
	if a.slow > 0 {
		<-time.After(a.slow)
	}
	if has != nil {
		return *has, nil
	}
	return v, cacheguard.ErrNotFound
}

// gets makes a call. If it is the first call, or comes right after another call, it is not checked.
func (a *auditing[V]) gets() V {
	a.Helper()
	v, err := a.c.Get(a.Context(), "k", a.load)
	if err != nil && !errors.Is(err, cacheguard.ErrNotFound) {
		a.Error(err)
	}
	return v
}

// isChecked makes a hit that the audit checks.
func (a *auditing[V]) isChecked() V {
	a.Helper()
	before := a.loads.Load()
	<-time.After(2 * time.Second)
	v := a.gets()
	synctest.Wait()
	if n := a.loads.Load() - before; n != 1 {
		a.Errorf("%d loads for a hit that is to be checked", n)
	}
	return v
}

// comes tests the result of the check of the last hit, and returns its event.
func (a *auditing[V]) comes(want cacheguard.Difference) (e cacheguard.Event) {
	a.Helper()
	<-time.After(2 * time.Second)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) != 1 || a.seen[0].Differs != want ||
		(want == cacheguard.NoDifference) != (a.seen[0].Story == nil) {
		a.Fatalf("compared: %+v; want %v", a.seen, want)
	}
	e, a.seen = a.seen[0], nil
	return e
}

// lossy is a store whose messages of changes are lost.
type lossy struct{ cacheguard.Store }

func (s lossy) Listen(cache string, tell func(cacheguard.Message)) (stop func()) {
	return s.Store.Listen(cache, func(m cacheguard.Message) {
		if m.Kind != cacheguard.MessageChanged {
			tell(m)
		}
	})
}

// careless is a store that stores the result of a load even if the load has lost its lease.
type careless struct{ cacheguard.Store }

func (s careless) Fill(
	ctx context.Context, k cacheguard.Key, g cacheguard.Grant, f []byte, ttl time.Duration,
) (cacheguard.FillAnswer, error) {
	ans, err := s.Store.Fill(ctx, k, g, f, ttl)
	if err == nil && ans != cacheguard.FillStored {
		g, err = s.Store.Claim(ctx, k, cacheguard.ID{1}, ttl)
		if err == nil {
			return s.Store.Fill(ctx, k, g, f, ttl)
		}
	}
	return ans, err
}

// forgetful is a store that reports that it has removed a value, but has not removed it.
type forgetful struct{ cacheguard.Store }

func (s forgetful) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	for _, k := range keys {
		f, _, err := s.Store.Get(ctx, k, nil)
		if err != nil {
			return err
		}
		if err := s.Store.Invalidate(ctx, keys); err != nil {
			return err
		}
		g, err := s.Store.Claim(ctx, k, cacheguard.ID{1}, time.Second)
		if err == nil {
			_, err = s.Store.Fill(ctx, k, g, f, time.Hour)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// If callers get a value that the origin no longer has, the audit finds the difference and names
// its cause.
func TestAuditNamesTheCause(t *testing.T) {
	one, two := 1, 2
	for name, test := range map[string]struct {
		opts  cacheguard.Options[int]
		store func(cacheguard.Store) cacheguard.Store
		harm  func(a *auditing[int]) // done when the value is stored
		meant cacheguard.Difference
		after func(a *auditing[int]) // done when the hit has been checked
		story string
	}{
		"nothing has changed": {},
		"nobody has said so": {
			harm: func(a *auditing[int]) {
				a.has.Store(&two)
			}, meant: cacheguard.DiffersMissed, story: "the same",
		},
		"it is gone": {
			harm: func(a *auditing[int]) {
				a.has.Store(nil)
			}, meant: cacheguard.DiffersMissed, story: "the same",
		},
		"it has come": {harm: func(a *auditing[int]) {
			a.has.Store(nil)
			must(a.T, a.c.Invalidate(a.Context(), "k"))
			a.gets()
			a.has.Store(&two)
		}, meant: cacheguard.DiffersMissed, story: "the same"},
		"by its TTL alone": {opts: cacheguard.Options[int]{
			Audit: cacheguard.Audit{Tolerance: time.Hour},
		},
			harm: func(a *auditing[int]) {
				a.has.Store(&two)
			}, meant: cacheguard.DiffersAllowed, story: "the same"},
		"longer than it may be": {opts: cacheguard.Options[int]{
			Audit: cacheguard.Audit{Tolerance: time.Second},
		},
			harm: func(a *auditing[int]) {
				a.has.Store(&two)
			}, meant: cacheguard.DiffersMissed, story: "the same"},
		"being removed": {harm: func(a *auditing[int]) {
			a.has.Store(&two)
		}, meant: cacheguard.DiffersMeanwhile,
			after: func(a *auditing[int]) {
				must(a.T, a.other.Invalidate(a.Context(), "k"))
			}, story: "no value"},
		"being replaced": {harm: func(a *auditing[int]) {
			a.has.Store(&two)
		}, meant: cacheguard.DiffersMeanwhile,
			after: func(a *auditing[int]) {
				must(a.T, a.other.Set(a.Context(), "k", 2))
			}, story: "another value"},
		"being marked": {opts: cacheguard.Options[int]{StaleIfError: time.Hour}, harm: func(
			a *auditing[int],
		) {
			a.has.Store(&two)
		},
			meant: cacheguard.DiffersMeanwhile, story: "the same, not fresh any more",
			after: func(a *auditing[int]) { must(a.T, a.other.MarkStale(a.Context(), "k")) }},
		"a lost message, and young": {opts: cacheguard.Options[int]{
			Local: cacheguard.Local[int]{Entries: 10},
			Audit: cacheguard.Audit{Tolerance: time.Hour},
		},
			store: func(s cacheguard.Store) cacheguard.Store { return lossy{s} },
			harm: func(a *auditing[int]) {
				a.has.Store(&two)
				must(a.T, a.other.Invalidate(a.Context(), "k"))
			}, meant: cacheguard.DiffersAllowed, story: "no value"},
		"a lost message": {opts: cacheguard.Options[int]{Local: cacheguard.Local[int]{Entries: 10}},
			store: func(s cacheguard.Store) cacheguard.Store { return lossy{s} },
			harm: func(a *auditing[int]) {
				a.has.Store(&two)
				must(a.T, a.other.Invalidate(a.Context(), "k"))
			}, meant: cacheguard.DiffersLost, story: "no value"},
		"a late fill": {store: func(s cacheguard.Store) cacheguard.Store { return careless{s} },
			harm: func(a *auditing[int]) {
				must(a.T, a.c.Invalidate(a.Context(), "k"))
				o := newScriptedOrigin[int](a.T)
				call := getting(a.Context(), a.T, a.c, "k", o.load)
				load := o.next()
				<-time.After(time.Second)
				a.has.Store(&two)
				must(a.T, a.other.Invalidate(a.Context(), "k"))
				load.gives(1)
				_, _ = call.now()
			}, meant: cacheguard.DiffersLate, story: "the same"},
		"not removed": {store: func(s cacheguard.Store) cacheguard.Store { return forgetful{s} },
			harm: func(a *auditing[int]) {
				a.has.Store(&two)
				must(a.T, a.c.Invalidate(a.Context(), "k"))
			}, meant: cacheguard.DiffersLate, story: "the same"},
	} {
		for _, local := range []int{0, 10} {
			if test.opts.Local.Entries > 0 && local == 0 {
				continue
			}
			inBubble(t, fmt.Sprintf("%s, local tier of %d", name, local), func(t *testing.T) {
				if test.store == nil {
					test.store = sound
				}
				test.opts.Local.Entries = local
				a := audited(t, test.opts, test.store)
				a.has.Store(&one)
				a.gets()
				<-time.After(time.Second)
				if test.harm != nil {
					test.harm(a)
				}
				served := a.isChecked()
				if test.after != nil {
					test.after(a)
				}
				e := a.comes(test.meant)
				wrong := uint64(0)
				if test.meant.Wrong() {
					wrong = 1
				}
				if s := a.c.Stats(); s.Wrong != wrong || s.Compared != 1 ||
					wrong == 1 && s.Nines() != 0 {
					t.Errorf("Stats say %+v, %v nines", s, s.Nines())
				}
				if e.Story == nil {
					return
				}
				if e.Story.Stands != test.story || len(e.Story.Load) != 32 ||
					e.Story.Age != e.Took || e.Story.Age < 2*time.Second ||
					e.Story.Asked.Sub(e.Story.Began) < e.Story.Age-time.Millisecond {
					t.Errorf("served %d with the story %+v of %+v", served, e.Story, e)
				}
				if late := test.meant == cacheguard.DiffersLate; late &&
					!e.Story.Changed.After(e.Story.Began) {
					t.Errorf("late, and the story says %+v", e.Story)
				}
			})
		}
	}
}

// The audit distinguishes a value that was loaded again after a change and is still old from a
// value whose change was never told. The story has the time of the change, for a change of the key,
// of a tag or of the whole cache.
func TestAuditKnowsOfChanges(t *testing.T) {
	for name, change := range map[string]func(a *auditing[int]) error{
		"nobody told": nil,
		"a key":       func(a *auditing[int]) error { return a.other.Invalidate(a.Context(), "k") },
		"a tag": func(a *auditing[int]) error {
			return a.other.InvalidateTags(a.Context(), "colour")
		},
		"all": func(a *auditing[int]) error { return a.other.InvalidateAll(a.Context()) },
		"another tag": func(a *auditing[int]) error {
			return a.other.InvalidateTags(a.Context(), "size")
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			a := audited(t, cacheguard.Options[int]{}, sound)
			has := 1
			get := func() {
				t.Helper()
				if _, err := a.c.GetEntry(t.Context(), "k", func(
					context.Context, cacheguard.Result[int],
				) (cacheguard.Entry[int], error) {
					return cacheguard.Entry[int]{Value: has, Tags: []string{"colour"}}, nil
				}); err != nil {
					t.Error(err)
				}
			}
			get()
			<-time.After(time.Second)
			if change != nil {
				must(t, change(a))
			}
			<-time.After(time.Second)
			get() // from a replica of the origin that lags
			<-time.After(2 * time.Second)
			a.mu.Lock()
			a.seen = nil // a value that wasn't changed was compared, and is the same
			a.mu.Unlock()
			has = 2
			get()
			e := a.comes(cacheguard.DiffersMissed)
			known := change != nil && name != "another tag"
			if known == e.Story.Changed.IsZero() ||
				known && !e.Story.Changed.Before(e.Story.Began) {
				t.Errorf("the story is %+v", e.Story)
			}
		})
	}
}

// A value that was stored as another type is decoded as this type as far as possible. The audit
// distinguishes this from a change.
func TestAuditFindsAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type before struct{ ID, Price int }
		type now struct{ ID, Amount int }
		a := audited(t, cacheguard.Options[now]{}, sound)
		old := openOn(t, cacheguard.Store(a.memory), cacheguard.Options[before]{})
		must(t, old.Set(t.Context(), "k", before{1, 2}))
		a.has.Store(&now{1, 2})
		a.isChecked()
		a.comes(cacheguard.DiffersType)
	})
}

// The audit finds a caller that changes a value which it shares with other callers.
func TestAuditFindsWhoChangesValues(t *testing.T) {
	for name, clone := range map[string]func([]int) []int{"shared": nil,
		"copied": func(v []int) []int {
			return append([]int(nil), v...)
		}} {
		inBubble(t, name, func(t *testing.T) {
			a := audited(t,
				cacheguard.Options[[]int]{
					Local: cacheguard.Local[[]int]{Entries: 10, Clone: clone},
				}, sound)
			a.has.Store(&[]int{1})
			a.gets()
			a.gets()[0]++
			a.has.Store(&[]int{1})
			v, want := a.isChecked(), cacheguard.DiffersMutated
			if clone != nil {
				v[0]++ // while it is compared
				want = cacheguard.NoDifference
			}
			a.comes(want)
		})
	}
}

// The hits of a batch are checked, too.
func TestAuditOfManyKeys(t *testing.T) {
	for name, local := range map[string]int{"without a local tier": 0, "with a local tier": 100} {
		inBubble(t, name, func(t *testing.T) {
			a := audited(t, cacheguard.Options[int]{Local: cacheguard.Local[int]{Entries: local}},
				sound)
			version := 1
			load := func(_ context.Context, missing []string) (map[string]int, error) {
				all := map[string]int{}
				for _, key := range missing {
					all[key] = version
				}
				return all, nil
			}
			get := func() {
				if got, err := a.c.GetMany(t.Context(), []string{"a", "b", "c"},
					load); err != nil || len(got) != 3 || got["a"] != 1 {
					t.Errorf("got %v, %v", got, err)
				}
			}
			get()
			<-time.After(2 * time.Second)
			version = 2
			get()
			if e := a.comes(cacheguard.DiffersMissed); e.Key == "" {
				t.Errorf("the event is %+v", e)
			}
		})
	}
}

// An audit costs the origin at most the allowed number of loads, fewer while the origin fails, and
// none while the origin is busy. Callers don't wait for it, and it changes neither leases nor
// values.
func TestAuditKeepsItsBudget(t *testing.T) {
	for name, local := range map[string]int{"without a local tier": 0, "with a local tier": 100} {
		inBubble(t, name, func(t *testing.T) {
			store := newTampered()
			defer store.Close()
			opts := cacheguard.Options[int]{
				TTL: time.Hour, MaxLoads: 1, Audit: cacheguard.Audit{PerSecond: 2},
				Local: cacheguard.Local[int]{Entries: local},
			}
			c := openOn(t, cacheguard.Store(store), opts)
			var loads, fails atomic.Int64
			load := func(context.Context) (int, error) {
				loads.Add(1)
				if fails.Load() > 0 {
					return 0, errOrigin
				}
				return 1, nil
			}
			hit := func(ctx context.Context) {
				if v, err := c.Get(ctx, "k", load); v != 1 || err != nil {
					t.Fatalf("got %d, %v", v, err)
				}
			}
			hits := func(during time.Duration) int64 {
				before := loads.Load()
				for end := time.Now().Add(during); time.Now().
					Before(end); <-time.After(10 * time.Millisecond) {
					hit(t.Context())
				}
				return loads.Load() - before
			}
			hit(t.Context())
			leases, fills := store.steps("Lease"), store.steps("Fill")
			if n := hits(100 * time.Second); n < 130 || n > 400 {
				t.Errorf("%d loads in 100 s, by 2 a second", n)
			}
			fails.Store(1)
			if n := hits(100 * time.Second); n < 4 || n > 14 {
				t.Errorf("%d loads in 100 s, while they fail", n)
			}
			fails.Store(0)
			hits(3 * time.Minute)
			if n := hits(100 * time.Second); n < 130 || n > 400 {
				t.Errorf("%d loads in 100 s, when they don't fail any more", n)
			}
			if leases != store.steps("Lease") || fills != store.steps("Fill") {
				t.Error("the audit has asked for leases, or stored something")
			}

			o := newScriptedOrigin[int](t)
			busy := getting(t.Context(), t, c, "other", o.load)
			other := o.next()
			if n := hits(100 * time.Second / 4); n != 0 {
				t.Errorf("%d loads beside one that needs all of MaxLoads", n)
			}
			other.gives(2)
			busy.gives(2, nil)

			// A caller that has left, and an origin that doesn't answer.
			<-time.After(2 * time.Second)
			ctx, leave := context.WithCancel(t.Context())
			gate := make(chan struct{})
			v, err := c.Get(ctx, "k", func(ctx context.Context) (int, error) {
				<-gate
				return 1, ctx.Err()
			})
			leave()
			before := c.Stats().Compared
			if v != 1 || err != nil {
				t.Errorf("got %d, %v", v, err)
			}
			close(gate)
			synctest.Wait()
			if c.Stats().Compared != before+1 {
				t.Error("what its caller had left was not checked")
			}
			for n, end := range []func() error{func() error {
				return c.Shutdown(t.Context())
			}, func() error {
				return c.Close()
			}} {
				<-time.After(2 * time.Second)
				var begun, over atomic.Bool
				if _, err := c.Get(t.Context(), "k", func(ctx context.Context) (int, error) {
					begun.Store(true)
					<-ctx.Done()
					over.Store(true)
					return 0, ctx.Err()
				}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				at := time.Now()
				must(t, end())
				synctest.Wait()
				if !begun.Load() || !over.Load() || time.Since(at) > 0 {
					t.Errorf("%d: a check has begun: %v, ended: %v, held up the end for %v", n,
						begun.Load(), over.Load(), time.Since(at))
				}
				c = openOn(t, cacheguard.Store(store), opts)
			}
			must(t, c.Close())
		})
	}
}

// Wrong numbers are reported. By default the audit is off.
func TestAuditOptions(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	for _, bad := range []cacheguard.Audit{
		{PerSecond: -1}, {PerSecond: 1e-6}, {PerSecond: 1001}, {PerSecond: math.NaN()},
		{Settle: -1}, {Settle: time.Microsecond}, {Tolerance: -1},
	} {
		if _, err := cacheguard.New(store,
			cacheguard.Options[int]{Name: "a", Audit: bad}); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if n := (cacheguard.Stats{Compared: 999}).Nines(); math.Abs(n-3) > 1e-9 {
		t.Errorf("999 right ones are %v nines", n)
	}
	if n := (cacheguard.Stats{Compared: 100_000, Wrong: 10}).Nines(); math.Abs(n-4) > 1e-9 {
		t.Errorf("one wrong of 10,000 is %v nines", n)
	}
	if n := (cacheguard.Stats{Compared: 1, Wrong: 1}).Nines(); n != 0 {
		t.Errorf("one wrong of one is %v nines", n)
	}
	if n := (cacheguard.Stats{}).Nines(); n != 0 {
		t.Errorf("without any it is %v nines", n)
	}
}

// A hit is not compared if its load's result is only for the load's own caller, or if its value
// can't be read again.
func TestAuditKnowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, o := newTampered(), &comparisons{}
		defer store.Close()
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{
			TTL: time.Hour, Observer: o, Audit: cacheguard.Audit{PerSecond: 1},
		})
		must(t, c.Set(t.Context(), "k", 1))
		var loads atomic.Int64
		hit := func(e cacheguard.Entry[int]) {
			<-time.After(2 * time.Second)
			res, err := c.GetEntry(t.Context(), "k", func(
				context.Context, cacheguard.Result[int],
			) (cacheguard.Entry[int], error) {
				loads.Add(1)
				return e, nil
			})
			if res.Value != 1 || err != nil {
				t.Errorf("got %+v, %v", res, err)
			}
			synctest.Wait()
		}
		hit(cacheguard.Entry[int]{Value: 2, NoShare: true})
		o.found(t)
		hit(cacheguard.Entry[int]{Value: 2})
		store.onto("Get", fails(always))
		o.found(t)
		if n := loads.Load(); n != 2 {
			t.Errorf("%d loads", n)
		}
	})
}

// A load may read an older value than the answer, from a replica that lags. Then the audit reports
// no difference.
func TestAuditAsksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := audited(t, cacheguard.Options[int]{}, sound)
		one, two := 1, 2
		a.has.Store(&two)
		a.gets()
		a.has.Store(&one)
		a.isChecked()
		a.has.Store(&two)
		a.comes(cacheguard.DiffersMeanwhile)
	})
}

// shuffled is a codec that encodes a value in many ways.
type shuffled struct{ n atomic.Int64 }

func (s *shuffled) Append(b []byte, v int) ([]byte, error) {
	return fmt.Appendf(b, "%d %d", v, s.n.Add(1)), nil
}

func (s *shuffled) Decode(b []byte) (v int, err error) {
	_, err = fmt.Sscan(string(b), &v)
	return v, err
}

// A codec that encodes a value in different ways is not reported as another type. A codec that
// loses the difference is reported.
func TestAuditAndCodecs(t *testing.T) {
	inBubble(t, "many ways", func(t *testing.T) {
		a := audited(t, cacheguard.Options[int]{Codec: &shuffled{}, Same: func(a, b int) bool {
			return a == b
		}}, sound)
		one, two := 1, 2
		a.has.Store(&one)
		a.gets()
		a.isChecked()
		a.comes(cacheguard.NoDifference)
		a.has.Store(&two)
		a.isChecked()
		a.comes(cacheguard.DiffersMissed)
	})
	inBubble(t, "lost", func(t *testing.T) {
		type product struct{ ID, price int }
		a := audited(t,
			cacheguard.Options[product]{Same: func(a, b product) bool { return a == b }}, sound)
		a.has.Store(&product{1, 2})
		a.gets()
		a.isChecked()
		a.comes(cacheguard.DiffersType)
	})
}

// If the origin and the cache are changed correctly, no answer is called wrong, for any number of
// changes and writers.
func TestAuditRaisesNoFalseAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := audited(t,
			cacheguard.Options[int]{
				Audit: cacheguard.Audit{PerSecond: 1000}, MaxLoads: -1,
				Local: cacheguard.Local[int]{Entries: 10},
			}, sound)
		zero := 0
		a.has.Store(&zero)
		a.slow = 10 * time.Millisecond
		var all sync.WaitGroup
		for w := range 2 {
			all.Go(func() {
				c := []*cacheguard.Cache[int]{a.c, a.other}[w]
				for i := range 300 {
					<-time.After(time.Duration(i*37%50) * time.Millisecond)
					next := w*1000 + i
					switch i % 3 {
					case 0:
						a.has.Store(&next)
						<-time.After(time.Duration(i%7) * time.Millisecond)
						must(t, c.Invalidate(t.Context(), "k"))
					case 1:
						_, err := c.Update(t.Context(), "k", func(context.Context) (int, error) {
							a.has.Store(&next)
							return next, nil
						})
						must(t, err)
					case 2:
						a.has.Store(&next)
						must(t, c.InvalidateAll(t.Context()))
					}
				}
			})
		}
		stop := make(chan struct{})
		go func() {
			all.Wait()
			close(stop)
		}()
		for going := true; going; {
			a.gets()
			select {
			case <-stop:
				going = false
			case <-time.After(time.Millisecond):
			}
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		changing := 0
		for _, e := range a.seen {
			if e.Differs.Wrong() {
				t.Errorf("%v: %+v", e.Differs, *e.Story)
			}
			if e.Differs == cacheguard.DiffersMeanwhile {
				changing++
			}
		}
		if s := a.c.Stats(); s.Wrong > 0 || s.Compared < 100 || changing == 0 {
			t.Errorf("%d were being changed, of %+v", changing, s)
		}
	})
}
