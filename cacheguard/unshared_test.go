package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/desk"
)

// private is a load of one second whose result is for its own caller, which is remembered for a
// minute.
func private(loads *atomic.Int32, name string) cacheguard.LoadFunc[entry] {
	return func(context.Context) (entry, error) {
		loads.Add(1)
		<-time.After(time.Second)
		return entry{Value: name, NoShare: true, TTL: time.Minute}, nil
	}
}

// TestNoShareIsRemembered (hit-for-miss): who waited loads for itself at once, in every process,
// and who comes later waits for nobody.
func TestNoShareIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
		var loads atomic.Int32
		round := func(what string, most time.Duration) {
			t.Helper()
			calls := map[string]*begun[cacheguard.Result[string]]{}
			for i := range 8 {
				name := fmt.Sprintf("%s %d", what, i)
				calls[name] = gettingEntry(t.Context(), t, []*cacheguard.Cache[string]{here, there}[i%2], "k", private(&loads, name))
			}
			for name, call := range calls {
				if r, err := call.later(); r.Value != name || err != nil || r.Status != cacheguard.StatusLoaded {
					t.Errorf("%s got %+v, %v", name, r, err)
				}
				if call.took > most+10*time.Millisecond {
					t.Errorf("%s got it after %v; want %v", name, call.took, most)
				}
			}
			if n := loads.Swap(0); n != 8 {
				t.Errorf("%s: %d loads; want one for each caller", what, n)
			}
		}
		round("first", 2*time.Second)
		round("second", time.Second)
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			if r, err := c.Peek(t.Context(), "k"); r != (cacheguard.Result[string]{}) || err != nil {
				t.Errorf("Peek: %+v, %v", r, err)
			}
		}
		<-time.After(2 * time.Minute)
		round("forgotten", 2*time.Second)
		if err := here.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		round("invalidated", 2*time.Second)
	})
}

// TestNoShareEndsWithTheFirstSharedResult, of the one call that has the lease; the others store
// nothing.
func TestNoShareEndsWithTheFirstSharedResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
		var loads atomic.Int32
		if _, err := here.GetEntry(t.Context(), "k", entries(private(&loads, "mine"))); err != nil {
			t.Fatal(err)
		}
		o := newScriptedOrigin[entry](t)
		first := gettingEntry(t.Context(), t, here, "k", o.load)
		leads := o.next()
		second := gettingEntry(t.Context(), t, there, "k", o.load)
		follows := o.next()
		follows.gives(entry{Value: "stored by nobody"})
		if r, err := second.now(); r.Value != "stored by nobody" || err != nil {
			t.Errorf("the second call got %+v, %v", r, err)
		}
		if r, _ := there.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss {
			t.Errorf("a call without the lease stored %+v", r)
		}
		leads.gives(entry{Value: "for all"})
		first.now()
		for _, c := range []*cacheguard.Cache[string]{here, there} {
			if r, err := c.GetEntry(t.Context(), "k", entries(private(&loads, "unexpected"))); r.Value != "for all" || r.Status != cacheguard.StatusHit || err != nil {
				t.Errorf("got %+v, %v", r, err)
			}
		}
	})
}

// P3: what such a call loads is not stored after an Invalidate that came during the load.
func TestNoShareThenInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		var loads atomic.Int32
		if _, err := c.GetEntry(t.Context(), "k", entries(private(&loads, "mine"))); err != nil {
			t.Fatal(err)
		}
		o := newScriptedOrigin[entry](t)
		call := gettingEntry(t.Context(), t, c, "k", o.load)
		load := o.next()
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		load.gives(entry{Value: "old"})
		if r, err := call.now(); r.Value != "old" || err != nil {
			t.Errorf("the call got %+v, %v", r, err)
		}
		if r, _ := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss {
			t.Errorf("there is %+v", r)
		}
	})
}

// TestNoShareKeeps shows loads the value that is not to be shared, if its load allowed that, and
// nobody else.
func TestNoShareKeeps(t *testing.T) {
	for name, keep := range map[string]time.Duration{"kept": time.Hour, "not kept": 0} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{Local: cacheguard.Local[string]{Entries: 10}, StaleIfError: time.Hour})
			loads := 0
			load := func(_ context.Context, prev cacheguard.Result[string]) (cacheguard.Entry[string], error) {
				loads++
				want := cacheguard.Result[string]{}
				if loads > 1 && keep > 0 {
					want = cacheguard.Result[string]{Value: fmt.Sprint(loads - 1), Status: cacheguard.StatusStale}
				}
				if prev.Value != want.Value || prev.Status != want.Status || prev.NotFound || prev.UsableFor != 0 {
					t.Errorf("load %d sees %+v; want %+v", loads, prev, want)
				}
				if loads == 4 {
					return cacheguard.Entry[string]{}, errOrigin
				}
				return cacheguard.Entry[string]{Value: fmt.Sprint(loads), NoShare: true, TTL: time.Minute, Keep: keep}, nil
			}
			for i := range 3 {
				if r, err := c.GetEntry(t.Context(), "k", load); r.Value != fmt.Sprint(i+1) || err != nil {
					t.Errorf("call %d: %+v, %v", i, r, err)
				}
				if i == 1 {
					<-time.After(2 * time.Minute) // no longer remembered
				}
			}
			if r, err := c.GetEntry(t.Context(), "k", load); !errors.Is(err, errOrigin) || r.Value != "" {
				t.Errorf("after a failed load: %+v, %v", r, err)
			}
			if r, err := c.Peek(t.Context(), "k"); r != (cacheguard.Result[string]{}) || err != nil {
				t.Errorf("Peek: %+v, %v", r, err)
			}
		})
	}
}

// TestGetManyMeetsNoShare loads for itself what is not shared, also when that turns out while it
// waits.
func TestGetManyMeetsNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		here, there := openOn(t, store, cacheguard.Options[string]{}), openOn(t, store, cacheguard.Options[string]{})
		var loads atomic.Int32
		one := gettingEntry(t.Context(), t, here, "a", private(&loads, "mine"))
		one.waits()
		for _, c := range []*cacheguard.Cache[string]{there, here, there} {
			got, err := c.GetMany(t.Context(), []string{"a", "b"}, func(_ context.Context, missing []string) (map[string]string, error) {
				values := map[string]string{}
				for _, key := range missing {
					values[key] = "of many"
				}
				return values, nil
			})
			if err != nil || got["a"] != "of many" || got["b"] != "of many" {
				t.Errorf("got %v, %v", got, err)
			}
		}
		one.later()
	})
}

// TestKeep shows a value to the next load after it can't be served any more, and for no longer.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		set := func() {
			if err := c.Invalidate(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			e := cacheguard.Entry[string]{Value: "v", TTL: time.Second, StaleIfError: time.Second, Keep: time.Minute}
			if _, err := c.RefreshEntry(t.Context(), "k", func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
				return e, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		sees := func(want cacheguard.Status, usable bool) {
			t.Helper()
			r, err := c.GetEntry(t.Context(), "k", func(_ context.Context, prev cacheguard.Result[string]) (cacheguard.Entry[string], error) {
				if prev.Status != want || (prev.Value == "v") != (want == cacheguard.StatusStale) || (prev.UsableFor > 0) != usable {
					t.Errorf("the load sees %+v", prev)
				}
				return cacheguard.Entry[string]{}, errOrigin
			})
			if usable != (err == nil) || usable != (r.Value == "v") {
				t.Errorf("the call got %+v, %v", r, err)
			}
		}
		set()
		<-time.After(1500 * time.Millisecond)
		sees(cacheguard.StatusStale, true)
		set()
		<-time.After(50 * time.Second)
		sees(cacheguard.StatusStale, false)
		<-time.After(15 * time.Second)
		sees(cacheguard.StatusMiss, false)
		if _, err := c.GetEntry(t.Context(), "wrong", func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Keep: -1}, nil
		}); err == nil || !strings.Contains(err.Error(), "Keep") {
			t.Errorf("a negative Keep: %v", err)
		}
	})
}

// TestRefreshEntry loads although the value is fresh, and shows it to the load.
func TestRefreshEntry(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("one"), "one", cacheguard.StatusLoaded)
		r, err := b.RefreshEntry(t.Context(), "k", func(_ context.Context, prev cacheguard.Result[string]) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: prev.Value + " and two"}, nil
		})
		if r.Value != "one and two" || r.Status != cacheguard.StatusLoaded || err != nil {
			t.Errorf("got %+v, %v", r, err)
		}
		synctest.Wait()
		gets(t, b, "k", tagged("unexpected"), "one and two", cacheguard.StatusHit)
		if _, err := a.RefreshEntry(t.Context(), "k", nil); err == nil {
			t.Error("a nil load is no error")
		}
	})
}

// TestLocal answers from the process-local tier and from nowhere else.
func TestLocal(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("v"), "v", cacheguard.StatusLoaded)
		r, ok := a.Local("k")
		if local := a.Stats().LocalEntries > 0; ok != local || (r.Value == "v") != local || r.Local != local {
			t.Errorf("got %+v, %v", r, ok)
		}
		if r, ok := b.Local("k"); ok {
			t.Errorf("another process has %+v", r)
		}
		a.Close()
		if r, ok := a.Local("k"); ok {
			t.Errorf("a closed one has %+v", r)
		}
	})
}

// TestMarkStaleTags ages what has the soft tag, wherever it is, and also what is loaded meanwhile.
func TestMarkStaleTags(t *testing.T) {
	soft := func(v string, ttl time.Duration) cacheguard.EntryFunc[string] {
		return func(_ context.Context, prev cacheguard.Result[string]) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Value: v, TTL: ttl, Tags: []string{"hard"}, SoftTags: []string{"hard", "soft"}}, nil
		}
	}
	fleets(t, cacheguard.Options[string]{StaleWhileRevalidate: time.Minute}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		both := []*cacheguard.Cache[string]{a, b}
		marks := func() {
			t.Helper()
			if err := a.MarkStaleTags(t.Context(), "unknown", "soft"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		gets(t, a, "k", soft("one", time.Hour), "one", cacheguard.StatusLoaded)
		for _, c := range both {
			gets(t, c, "k", soft("unexpected", 0), "one", cacheguard.StatusHit)
		}
		<-time.After(time.Second)
		marks()
		<-time.After(time.Second)
		for _, c := range both {
			if r, err := c.Peek(t.Context(), "k"); r.Value != "one" || r.Status != cacheguard.StatusStale || r.FreshFor != -time.Second || err != nil {
				t.Errorf("a marked value is %+v, %v", r, err)
			}
		}
		gets(t, b, "k", soft("two", time.Hour), "one", cacheguard.StatusStale)
		synctest.Wait() // for the refresh
		for _, c := range both {
			gets(t, c, "k", soft("unexpected", 0), "two", cacheguard.StatusHit)
			got, err := c.GetMany(t.Context(), []string{"k"}, func(context.Context, []string) (map[string]string, error) { return nil, errOrigin })
			if got["k"] != "two" || err != nil {
				t.Errorf("GetMany: %v, %v", got, err)
			}
		}
		marks()
		<-time.After(2 * time.Minute)
		gets(t, a, "k", soft("three", time.Hour), "three", cacheguard.StatusLoaded)
		if err := b.InvalidateTags(t.Context(), "hard"); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss || err != nil {
			t.Errorf("an invalidated value is %+v, %v", r, err)
		}

		o := newScriptedOrigin[entry](t)
		call := gettingEntry(t.Context(), t, b, "k", o.load)
		load := o.next()
		marks()
		load.gives(entry{Value: "four", TTL: time.Hour, SoftTags: []string{"soft"}})
		if r, err := call.now(); r.Value != "four" || err != nil {
			t.Errorf("the call got %+v, %v", r, err)
		}
		if r, err := a.Peek(t.Context(), "k"); r.Value != "four" || r.Status != cacheguard.StatusStale || err != nil {
			t.Errorf("what was loaded meanwhile is %+v, %v", r, err)
		}
	})
}

// TestMarkStaleTagsManyAtOnce: a batch sees marks like single reads do.
func TestMarkStaleTagsManyAtOnce(t *testing.T) {
	fleets(t, cacheguard.Options[string]{StaleIfError: time.Minute}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		for _, key := range []string{"1", "2"} {
			_, err := a.GetEntry(t.Context(), key, func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
				return cacheguard.Entry[string]{Value: "v" + key, SoftTags: []string{"of " + key}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second)
		if err := b.MarkStaleTags(t.Context(), "of 1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, c := range []*cacheguard.Cache[string]{a, b} {
			var asked []string
			got, err := c.GetMany(t.Context(), []string{"1", "2"}, func(_ context.Context, missing []string) (map[string]string, error) {
				asked = append(asked, missing...)
				return nil, errOrigin
			})
			if got["1"] != "v1" || got["2"] != "v2" || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
			if c == a && strings.Join(asked, ",") != "1" {
				t.Errorf("the load was asked for %v", asked)
			}
		}
	})
}

// TestSoftTagsThatCantBe are errors that say so.
func TestSoftTagsThatCantBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
		for what, e := range map[string]entry{
			"zero byte": {Tags: []string{"\x00a"}},
			"empty":     {SoftTags: []string{""}},
			"255":       {SoftTags: []string{strings.Repeat("a", 255)}},
			"65 tags":   {Tags: make([]string, 33), SoftTags: strings.Fields(strings.Repeat("a ", 32))},
		} {
			for i := range e.Tags {
				if e.Tags[i] == "" {
					e.Tags[i] = "a"
				}
			}
			_, err := c.GetEntry(t.Context(), what, entries(returning(e)))
			if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(what, "255")) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, tag := range []string{"", "\x00a", strings.Repeat("a", 255)} {
			if err := c.MarkStaleTags(t.Context(), tag); err == nil {
				t.Errorf("MarkStaleTags took %.10q", tag)
			}
		}
		if err := c.InvalidateTags(t.Context(), "\x00a"); err == nil {
			t.Error("InvalidateTags took a soft tag")
		}
		if err := c.MarkStaleTags(t.Context()); err != nil {
			t.Errorf("no tags: %v", err)
		}
	})
}

// TestDesk does what a load brings on the goroutine of its caller, who may panic with it, or whose
// client may leave.
func TestDesk(t *testing.T) {
	type call struct {
		r       cacheguard.Result[string]
		err     error
		paniced any
	}
	get := func(t *testing.T, c *cacheguard.Cache[string], client context.Context, job func()) <-chan call {
		ended := make(chan call, 1)
		go func() {
			var got call
			defer func() { ended <- got }()
			defer func() { got.paniced = recover() }()
			d := desk.Open(client)
			defer d.Close()
			ctx, cancel := context.WithTimeout(desk.With(client, d), time.Second)
			defer cancel()
			got.r, got.err = c.GetEntry(ctx, "k", func(ctx context.Context, _ cacheguard.Result[string]) (cacheguard.Entry[string], error) {
				if desk.From(ctx) != nil {
					t.Error("the load's context has the desk of its caller")
				}
				whole, over := false, make(chan struct{})
				if !d.Do(func() {
					defer close(over)
					job()
					whole = true
				}) {
					t.Error("the caller has left")
				}
				select {
				case <-over:
				case <-ctx.Done():
					return cacheguard.Entry[string]{}, ctx.Err()
				}
				if !whole {
					return cacheguard.Entry[string]{}, errOrigin
				}
				return cacheguard.Entry[string]{Value: "v"}, nil
			})
		}()
		return ended
	}
	waiter := func(t *testing.T, c *cacheguard.Cache[string]) *begun[cacheguard.Result[string]] {
		w := gettingEntry(t.Context(), t, c, "k", failingWith[entry](errors.New("a waiter's load ran")))
		w.waits()
		return w
	}
	for _, where := range []string{"here", "there"} {
		other := func(t *testing.T, store *memstore.Store, c *cacheguard.Cache[string]) *cacheguard.Cache[string] {
			if where == "here" {
				return c
			}
			return openOn(t, store, cacheguard.Options[string]{})
		}
		inBubble(t, "returns "+where, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{})
			ended := get(t, c, t.Context(), func() { <-time.After(5 * time.Second) }) // longer than its patience with others
			synctest.Wait()
			w := waiter(t, other(t, store, c))
			if got := <-ended; got.r.Value != "v" || got.r.Status != cacheguard.StatusLoaded || got.err != nil {
				t.Errorf("got %+v", got)
			}
			if r, err := w.later(); r.Value != "v" || err != nil {
				t.Errorf("the waiter got %+v, %v", r, err)
			}
		})
		inBubble(t, "panics "+where, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{ErrorTTL: -1})
			ended := get(t, c, t.Context(), func() { <-time.After(time.Second / 2); panic("mine") })
			synctest.Wait()
			w := waiter(t, other(t, store, c))
			if got := <-ended; got.paniced != "mine" {
				t.Errorf("got %+v", got)
			}
			if _, err := w.later(); err == nil || !strings.Contains(err.Error(), errOrigin.Error()) {
				t.Errorf("the waiter got %v", err)
			}
			if got := <-get(t, c, t.Context(), func() {}); got.r.Value != "v" {
				t.Errorf("the next call got %+v", got)
			}
		})
		inBubble(t, "leaves "+where, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{})
			client, leave := context.WithCancel(t.Context())
			ended := get(t, c, client, func() { <-time.After(time.Second / 2) })
			synctest.Wait()
			w := waiter(t, other(t, store, c))
			leave()
			if where == "here" {
				if got := <-ended; got.err != context.Canceled {
					t.Errorf("got %+v", got)
				}
				if r, err := w.later(); r.Value != "v" || err != nil {
					t.Errorf("the waiter got %+v, %v", r, err)
				}
				return
			}
			<-ended // the last one in its process: its load is given up, and the next process loads
			if _, err := w.later(); err == nil || !strings.Contains(err.Error(), "a waiter's load ran") {
				t.Errorf("the waiter got %v", err)
			}
		})
	}
}
