package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// tagged is a load whose result has tags.
func tagged(v string, tags ...string) cacheguard.EntryFunc[string] {
	return func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
		return cacheguard.Entry[string]{Value: v, Tags: tags}, nil
	}
}

// gets tests the value and the status of a call.
func gets(
	t *testing.T, c *cacheguard.Cache[string], key string, load cacheguard.EntryFunc[string],
	want string, status cacheguard.Status,
) {
	t.Helper()
	r, err := c.GetEntry(t.Context(), key, load)
	if err != nil || r.Value != want || r.Status != status {
		t.Errorf("%s: got %q, %v, %v; want %q, %v", key, r.Value, r.Status, err, want, status)
	}
}

// fleets are caches of two processes, with a local tier and without.
func fleets(
	t *testing.T, opts cacheguard.Options[string],
	do func(t *testing.T, a, b *cacheguard.Cache[string]),
) {
	for name, local := range map[string]cacheguard.Local[string]{
		"store": {}, "local": {Entries: 100},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts.Local = local
			do(t, openOn(t, cacheguard.Store(store), opts),
				openOn(t, cacheguard.Store(store), opts))
		})
	}
}

// P3: the invalidation of a tag invalidates all values with the tag, in every process, and no other
// values.
func TestInvalidateTags(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		both := []*cacheguard.Cache[string]{a, b}
		gets(t, a, "1", tagged("one", "odd", "small"), "one", cacheguard.StatusLoaded)
		gets(t, a, "2", tagged("two", "even", "small"), "two", cacheguard.StatusLoaded)
		gets(t, a, "3", tagged("three"), "three", cacheguard.StatusLoaded)
		for range 2 { // from the store, and then perhaps from the local tier
			for _, c := range both {
				gets(t, c, "1", tagged("unexpected"), "one", cacheguard.StatusHit)
				gets(t, c, "2", tagged("unexpected"), "two", cacheguard.StatusHit)
				gets(t, c, "3", tagged("unexpected"), "three", cacheguard.StatusHit)
			}
		}
		if err := a.InvalidateTags(t.Context(), "odd", "unknown"); err != nil {
			t.Fatal(err)
		}
		for _, c := range both {
			if r, err := c.Peek(t.Context(), "1"); r.Status != cacheguard.StatusMiss ||
				r.Value != "" || err != nil {
				t.Errorf("an invalidated value is there: %+v, %v", r, err)
			}
			gets(t, c, "2", tagged("unexpected"), "two", cacheguard.StatusHit)
			gets(t, c, "3", tagged("unexpected"), "three", cacheguard.StatusHit)
		}
		gets(t, b, "1", tagged("uno", "odd"), "uno", cacheguard.StatusLoaded)
		gets(t, a, "1", tagged("unexpected"), "uno", cacheguard.StatusHit)
		if err := b.InvalidateTags(t.Context(), "small"); err != nil {
			t.Fatal(err)
		}
		for _, c := range both {
			// Its tags are the new ones.
			gets(t, c, "1", tagged("unexpected"), "uno", cacheguard.StatusHit)
			if r, _ := c.Peek(t.Context(), "2"); r.Status != cacheguard.StatusMiss {
				t.Errorf("an invalidated value is there: %+v", r)
			}
		}
		if err := b.InvalidateAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"1", "2", "3"} {
			for _, c := range both {
				if r, _ := c.Peek(t.Context(), key); r.Status != cacheguard.StatusMiss {
					t.Errorf("after InvalidateAll %s is there: %+v", key, r)
				}
			}
			gets(t, a, key, tagged("new", "odd"), "new", cacheguard.StatusLoaded)
			gets(t, b, key, tagged("unexpected"), "new", cacheguard.StatusHit)
		}
	})
}

// A load that began before an invalidation of its tag is for those who wait for it, and for nobody
// who comes later.
func TestInvalidateTagsDuringALoad(t *testing.T) {
	for name, invalidate := range map[string]func(context.Context, *cacheguard.Cache[string]) error{
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "tag")
		},
		"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleets(t, cacheguard.Options[string]{}, func(
				t *testing.T, a, b *cacheguard.Cache[string],
			) {
				o := newScriptedOrigin[string](t)
				load := func(
					ctx context.Context, _ cacheguard.Result[string],
				) (cacheguard.Entry[string], error) {
					v, err := o.load(ctx)
					return cacheguard.Entry[string]{Value: v, Tags: []string{"tag"}}, err
				}
				get := func(c *cacheguard.Cache[string]) *begun[string] {
					return beginCall(t, func() (string, error) {
						r, err := c.GetEntry(t.Context(), "k", load)
						return r.Value, err
					})
				}
				early := get(a)
				old := o.next()
				if err := invalidate(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				late, elsewhere := get(a), get(b)
				late.waits()
				elsewhere.waits()
				old.gives("old")
				early.gives("old", nil)
				o.next().gives("new")
				late.gives("new", nil)
				elsewhere.gives("new", nil)
				o.loads(2)
				for _, c := range []*cacheguard.Cache[string]{a, b} {
					gets(t, c, "k", tagged("unexpected"), "new", cacheguard.StatusHit)
				}
			})
		})
	}
}

// "Does not exist" has tags too: a thing that comes to be is seen when its tag says so.
func TestTagsOfWhatDoesNotExist(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		missing := func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{Tags: []string{"shop"}}, cacheguard.ErrNotFound
		}
		for _, c := range []*cacheguard.Cache[string]{a, b, a, b} {
			if _, err := c.GetEntry(t.Context(), "k", missing); !errors.Is(err,
				cacheguard.ErrNotFound) {
				t.Errorf("got %v", err)
			}
		}
		if err := a.InvalidateTags(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		gets(t, b, "k", tagged("here"), "here", cacheguard.StatusLoaded)
	})
}

// What was invalidated by its tag is not served as stale either, nor shown to the next load; what
// is not modified keeps its tags.
func TestTagsAndStaleValues(t *testing.T) {
	opts := cacheguard.Options[string]{
		TTL: time.Second, StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour, Jitter: -1,
	}
	fleets(t, opts, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("v", "tag"), "v", cacheguard.StatusLoaded)
		time.Sleep(2 * time.Second)
		same := func(
			_ context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			if prev.Value != "v" {
				t.Errorf("a load was shown %+v", prev)
			}
			return cacheguard.Entry[string]{NotModified: true}, nil
		}
		gets(t, b, "k", same, "v", cacheguard.StatusStale)
		synctest.Wait()
		gets(t, b, "k", tagged("unexpected"), "v", cacheguard.StatusHit)
		time.Sleep(2 * time.Second)
		if err := a.InvalidateTags(t.Context(), "tag"); err != nil {
			t.Fatal(err)
		}
		boom := errors.New("boom")
		_, err := b.GetEntry(t.Context(), "k", func(
			_ context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			if prev.Status != cacheguard.StatusMiss || prev.Value != "" {
				t.Errorf("a load was shown %+v", prev)
			}
			return cacheguard.Entry[string]{}, boom
		})
		if !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
	})
}

// SetEntry stores tags and a lifetime, and what was set after an invalidation stays.
func TestSetEntry(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		set := func(e cacheguard.Entry[string]) {
			t.Helper()
			if err := a.SetEntry(t.Context(), "k", e); err != nil {
				t.Error(err)
			}
		}
		if err := b.InvalidateTags(t.Context(), "tag"); err != nil {
			t.Error(err)
		}
		set(cacheguard.Entry[string]{Value: "v", Tags: []string{"tag"}, TTL: time.Minute})
		gets(t, b, "k", tagged("unexpected"), "v", cacheguard.StatusHit)
		time.Sleep(59 * time.Second)
		gets(t, b, "k", tagged("unexpected"), "v", cacheguard.StatusHit)
		if err := b.InvalidateTags(t.Context(), "tag"); err != nil {
			t.Error(err)
		}
		gets(t, a, "k", tagged("w"), "w", cacheguard.StatusLoaded)
		set(cacheguard.Entry[string]{Value: "x", TTL: time.Minute, StaleIfError: time.Hour})
		time.Sleep(61 * time.Second)
		failing := func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{}, errors.New("boom")
		}
		gets(t, b, "k", failing, "x", cacheguard.StatusStale)
		for what, e := range map[string]cacheguard.Entry[string]{
			"NoStore": {NoStore: true}, "NoShare": {NoShare: true},
			"NotModified": {NotModified: true},
			"TTL":         {TTL: -1}, "StaleIfError": {StaleIfError: 1 << 62},
			"tag":  {Tags: []string{""}},
			"Tags": {Tags: slices.Repeat([]string{"a"}, 65)},
		} {
			if err := a.SetEntry(t.Context(), "k", e); err == nil ||
				!strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// A mark makes a value stale at once, in every process, and ends the lease of a load that may be
// older.
func TestMarkStale(t *testing.T) {
	opts := cacheguard.Options[string]{StaleWhileRevalidate: time.Minute, StaleIfError: time.Hour}
	fleets(t, opts, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("old"), "old", cacheguard.StatusLoaded)
		gets(t, b, "k", tagged("unexpected"), "old", cacheguard.StatusHit)
		mark := func() {
			t.Helper()
			if err := a.MarkStale(t.Context(), "k", "unknown"); err != nil {
				t.Error(err)
			}
		}
		mark()
		r, err := b.Peek(t.Context(), "k")
		if r.Status != cacheguard.StatusStale || r.Value != "old" || r.FreshFor > 0 || err != nil {
			t.Errorf("marked: %+v, %v", r, err)
		}
		gets(t, b, "k", tagged("new"), "old", cacheguard.StatusStale)
		synctest.Wait()
		gets(t, a, "k", tagged("unexpected"), "new", cacheguard.StatusHit)

		// The windows begin with the mark.
		mark()
		time.Sleep(59 * time.Second)
		boom := func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{}, errors.New("boom")
		}
		gets(t, a, "k", boom, "new", cacheguard.StatusStale)
		synctest.Wait()
		time.Sleep(2 * time.Minute) // the back-off is over, and the window too
		load := newScriptedOrigin[string](t)
		call := getting(t.Context(), t, b, "k", load.load)
		running := load.next()
		if err := a.MarkStale(t.Context(), "k"); err != nil { // what loads now may be older
			t.Error(err)
		}
		late := getting(t.Context(), t, b, "k", load.load)
		second := load.next()
		running.gives("older")
		call.gives("older", nil)
		second.gives("newest")
		late.gives("newest", nil)
		gets(t, a, "k", tagged("unexpected"), "newest", cacheguard.StatusHit)
	})
}

// Without windows a marked value is as good as none, but the next load gets to see it.
func TestMarkStaleWithoutWindows(t *testing.T) {
	fleets(t, cacheguard.Options[string]{}, func(t *testing.T, a, b *cacheguard.Cache[string]) {
		gets(t, a, "k", tagged("v", "tag"), "v", cacheguard.StatusLoaded)
		if err := b.MarkStale(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		same := func(
			_ context.Context, prev cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			if prev.Value != "v" || prev.Status != cacheguard.StatusStale {
				t.Errorf("a load was shown %+v", prev)
			}
			return cacheguard.Entry[string]{NotModified: true}, nil
		}
		gets(t, a, "k", same, "v", cacheguard.StatusLoaded)
		gets(t, b, "k", tagged("unexpected"), "v", cacheguard.StatusHit)
		if err := b.InvalidateTags(t.Context(), "tag"); err != nil { // which it still has
			t.Error(err)
		}
		gets(t, a, "k", tagged("w"), "w", cacheguard.StatusLoaded)
	})
}

// deaf is a store that can't be told of invalidations by tag.
type deaf struct{ *memstore.Store }

func (deaf) InvalidateTags(context.Context, string, []string) (int64, error) {
	return 0, errTampered
}

// An invalidation that may not have been done is an error, and takes what this process has; what is
// stored later counts at once.
func TestInvalidateTagsFails(t *testing.T) {
	for what, invalidate := range map[string]func(ctx context.Context,
		c *cacheguard.Cache[string]) error{
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "tag")
		},
		"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		},
	} {
		inBubble(t, what, func(t *testing.T) {
			c := openOn(t, cacheguard.Store(deaf{memstore.New(memstore.Options{})}),
				cacheguard.Options[string]{
					Local: cacheguard.Local[string]{Entries: 100}})
			local := func(key string, want bool) {
				t.Helper()
				r, err := c.GetEntry(t.Context(), key, tagged("unexpected", "tag"))
				if err != nil || r.Value != key || r.Local != want {
					t.Errorf("%s: %+v, %v; want it local: %v", key, r, err, want)
				}
			}
			gets(t, c, "old", tagged("old", "tag"), "old", cacheguard.StatusLoaded)
			local("old", true)
			o := newScriptedOrigin[cacheguard.Entry[string]](t)
			waiting := gettingEntry(t.Context(), t, c, "new", o.load)
			load := o.next()
			if err := invalidate(t.Context(), c); !errors.Is(err, errTampered) {
				t.Errorf("the error is %v", err)
			}
			gets(t, c, "old", tagged("old", "tag"), "old", cacheguard.StatusLoaded)
			gets(t, c, "later", tagged("later", "tag"), "later", cacheguard.StatusLoaded)
			local("later", true)
			load.gives(cacheguard.Entry[string]{Value: "new", Tags: []string{"tag"}})
			if r, err := waiting.now(); r.Value != "new" || err != nil {
				t.Errorf("who waited: %+v, %v", r, err)
			}
			// Its load began before.
			gets(t, c, "new", tagged("new", "tag"), "new", cacheguard.StatusLoaded)
		})
	}
}

func TestWrongTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{})
		for _, tags := range [][]string{{""}, {"a", strings.Repeat("x", 256)}} {
			if err := c.InvalidateTags(t.Context(), tags...); err == nil ||
				!strings.Contains(err.Error(), "tag") {
				t.Errorf("%.20q: %v", tags, err)
			}
			_, err := c.GetEntry(t.Context(), fmt.Sprintf("%.20q", tags), tagged("v", tags...))
			if err == nil || !strings.Contains(err.Error(), "Entry.Tags") {
				t.Errorf("%.20q: %v", tags, err)
			}
		}
		if err := c.InvalidateTags(t.Context()); err != nil {
			t.Errorf("of no tags: %v", err)
		}
		many := make([]string, 1000)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		gets(t, c, "k", tagged("v", "999"), "v", cacheguard.StatusLoaded)
		if err := c.InvalidateTags(t.Context(), many...); err != nil {
			t.Errorf("of %d tags: %v", len(many), err)
		}
		gets(t, c, "k", tagged("w"), "w", cacheguard.StatusLoaded)
		c.Close()
		for what, err := range map[string]error{
			"InvalidateTags": c.InvalidateTags(t.Context(), "a"),
			"InvalidateAll":  c.InvalidateAll(t.Context()),
			"MarkStale":      c.MarkStale(t.Context(), "k"),
			"SetEntry":       c.SetEntry(t.Context(), "k", cacheguard.Entry[string]{}),
		} {
			if !errors.Is(err, cacheguard.ErrClosed) {
				t.Errorf("%s of a closed cache: %v", what, err)
			}
		}
	})
}
