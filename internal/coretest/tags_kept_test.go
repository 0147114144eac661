package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

var errWrite = errors.New("the write failed")

type cacheOf = *cacheguard.Cache[string]

func constant(v string) cacheguard.LoadFunc[string] {
	return func(context.Context) (string, error) { return v, nil }
}

func entryFunc(e cacheguard.Entry[string]) cacheguard.EntryFunc[string] {
	return func(context.Context, cacheguard.Result[string]) (cacheguard.Entry[string], error) {
		return e, nil
	}
}

// storing are the ways to store a value of the key k, by what is said about it; loads are those
// that do nothing about a fresh one.
var storing = map[string]struct {
	store func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error
	plain bool // it says nothing about tags, whatever the entry does
	loads bool
}{
	"Set": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		return c.Set(ctx, "k", e.Value)
	}, plain: true},
	"SetEntry": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		return c.SetEntry(ctx, "k", e)
	}},
	"Update": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.Update(ctx, "k", constant(e.Value))
		return err
	}, plain: true},
	"UpdateEntry": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.UpdateEntry(ctx, "k", func(context.Context) (cacheguard.Entry[string], error) {
			return e, nil
		})
		return err
	}},
	"Refresh": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.Refresh(ctx, "k", constant(e.Value))
		return err
	}, plain: true},
	"RefreshEntry": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.RefreshEntry(ctx, "k", entryFunc(e))
		return err
	}},
	"Get": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.Get(ctx, "k", constant(e.Value))
		return err
	}, plain: true, loads: true},
	"GetEntry": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.GetEntry(ctx, "k", entryFunc(e))
		return err
	}, loads: true},
	"GetMany": {store: func(ctx context.Context, c cacheOf, e cacheguard.Entry[string]) error {
		_, err := c.GetMany(ctx, []string{"k", "other"}, func(
			context.Context, []string,
		) (map[string]string, error) {
			return map[string]string{"k": e.Value, "other": "o"}, nil
		})
		return err
	}, plain: true, loads: true},
	"GetManyEntries": {store: func(
		ctx context.Context, c cacheOf, e cacheguard.Entry[string],
	) error {
		_, err := c.GetManyEntries(ctx, []string{"k", "other"}, func(
			context.Context, []string,
		) (map[string]cacheguard.Entry[string], error) {
			return map[string]cacheguard.Entry[string]{"k": e, "other": {Value: "o"}}, nil
		})
		return err
	}, loads: true},
}

// standing are what a value with tags can have come to.
var standing = map[string]struct {
	make  func(t *testing.T, store cacheguard.Store, c cacheOf)
	fresh bool
}{
	"fresh": {func(*testing.T, cacheguard.Store, cacheOf) {}, true},
	"expired": {func(*testing.T, cacheguard.Store, cacheOf) {
		time.Sleep(61 * time.Second)
	}, false},
	"marked stale": {func(t *testing.T, _ cacheguard.Store, c cacheOf) {
		must(t, c.MarkStale(t.Context(), "k"))
	}, false},
	"invalidated by tag": {func(t *testing.T, _ cacheguard.Store, c cacheOf) {
		must(t, c.InvalidateTags(t.Context(), "tag"))
	}, false},
	"marked stale by tag": {func(t *testing.T, _ cacheguard.Store, c cacheOf) {
		must(t, c.MarkStaleTags(t.Context(), "soft"))
	}, false},
	"claimed by a writer that died": {func(t *testing.T, store cacheguard.Store, _ cacheOf) {
		_, err := store.Claim(t.Context(), cacheguard.Key{Cache: "behave", Key: "k"},
			cacheguard.ID{7}, time.Millisecond)
		must(t, err)
		time.Sleep(time.Second)
	}, false},
	"claimed twice": {func(t *testing.T, store cacheguard.Store, _ cacheOf) {
		for i := range byte(2) {
			_, err := store.Claim(t.Context(), cacheguard.Key{Cache: "behave", Key: "k"},
				cacheguard.ID{7 + i}, time.Millisecond)
			must(t, err)
		}
		time.Sleep(time.Second)
	}, false},
	"taken away by a write that failed": {func(t *testing.T, _ cacheguard.Store, c cacheOf) {
		if _, err := c.Update(t.Context(), "k", func(context.Context) (string, error) {
			return "", errWrite
		}); !errors.Is(err, errWrite) {
			t.Fatal(err)
		}
	}, false},
	"taken away by one that can't be stored": {func(t *testing.T, _ cacheguard.Store, c cacheOf) {
		if err := c.Set(t.Context(), "k", strings.Repeat("x", 2000)); !errors.Is(err,
			cacheguard.ErrTooLarge) {
			t.Fatal(err)
		}
	}, false},
	"taken away by a write that came too late": {func(t *testing.T, _ cacheguard.Store, c cacheOf) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Update(ctx, "k", func(context.Context) (string, error) {
			cancel()
			synctest.Wait()
			time.Sleep(time.Second)
			return "late", nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}, false},
	"written by another codec": {func(t *testing.T, store cacheguard.Store, _ cacheOf) {
		c := openOn(t, store, cacheguard.Options[int]{TTL: time.Minute})
		must(t,
			c.SetEntry(t.Context(), "k",
				cacheguard.Entry[int]{Value: 1, Tags: []string{"tag"}, SoftTags: []string{"soft"}}))
	}, false},
}

// TestTagsAreKept stores in each way over each value with tags without a word about them, and after
// that an invalidation of the tag hits what was stored. A word about them counts.
func TestTagsAreKept(t *testing.T) {
	for what, old := range standing {
		for how, way := range storing {
			if old.fresh && way.loads {
				continue
			}
			for says, e := range map[string]cacheguard.Entry[string]{
				"nothing": {Value: "new"}, "none": {Value: "new", Tags: []string{}},
				"others": {Value: "new", SoftTags: []string{"another"}},
			} {
				if way.plain && says != "nothing" {
					continue
				}
				t.Run(what+"/"+how+"/"+says, func(t *testing.T) {
					opts := cacheguard.Options[string]{
						TTL: time.Minute, StaleIfError: time.Hour, Jitter: -1, MaxValueSize: 1000,
					}
					tagsAreKept(t, opts, old.make, func(ctx context.Context, c cacheOf) error {
						return way.store(ctx, c, e)
					}, says == "nothing")
				})
			}
		}
	}
}

func tagsAreKept(
	t *testing.T, opts cacheguard.Options[string], old func(*testing.T, cacheguard.Store, cacheOf),
	way func(context.Context, cacheOf) error, kept bool,
) {
	for name, local := range map[string]cacheguard.Local[string]{
		"store": {}, "local": {Entries: 100},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			opts.Local = local
			a, b := openOn(t, cacheguard.Store(store), opts),
				openOn(t, cacheguard.Store(store), opts)
			must(t,
				a.SetEntry(t.Context(), "k", cacheguard.Entry[string]{
					Value: "old", Tags: []string{"tag"}, SoftTags: []string{"soft"},
				}))
			old(t, store, a)
			must(t, way(t.Context(), b))
			synctest.Wait()
			for _, tag := range []string{"unknown", "tag"} {
				for _, c := range []cacheOf{a, b} {
					if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusHit ||
						r.Value != "new" || err != nil {
						t.Fatalf("before %q was invalidated: %+v, %v", tag, r, err)
					}
				}
				must(t, a.InvalidateTags(t.Context(), tag))
			}
			want := cacheguard.StatusHit
			if kept {
				want = cacheguard.StatusMiss
			}
			for _, c := range []cacheOf{a, b} {
				if r, err := c.Peek(t.Context(), "k"); r.Status != want || err != nil {
					t.Errorf("after its tag was invalidated: %+v, %v; want %v", r, err, want)
				}
			}
		})
	}
}

// TestTagsAreKeptByWritersAtOnce has a second writer come between the claim of the first and what
// it stores.
func TestTagsAreKeptByWritersAtOnce(t *testing.T) {
	for first, one := range storing {
		for second, other := range storing {
			if one.loads || other.loads || first == "Refresh" || first == "RefreshEntry" {
				continue
			}
			inBubble(t, first+"/"+second, func(t *testing.T) {
				store := newTampered()
				a, b := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{}),
					openOn(t, cacheguard.Store(store), cacheguard.Options[string]{})
				must(t,
					a.SetEntry(t.Context(), "k",
						cacheguard.Entry[string]{Value: "old", Tags: []string{"tag"}}))
				came := false
				store.past("Claim", func(ctx context.Context) error {
					if !came {
						came = true
						go func() {
							_ = other.store(ctx, b, cacheguard.Entry[string]{Value: "second"})
						}()
						synctest.Wait()
					}
					return nil
				})
				must(t, one.store(t.Context(), a, cacheguard.Entry[string]{Value: "first"}))
				synctest.Wait()
				must(t, b.InvalidateTags(t.Context(), "tag"))
				for _, c := range []cacheOf{a, b} {
					if r, err := c.Peek(t.Context(), "k"); r.Status != cacheguard.StatusMiss ||
						err != nil {
						t.Errorf("after its tag was invalidated: %+v, %v", r, err)
					}
				}
			})
		}
	}
}

// TestTagsAreKeptInAnyOrder has several callers of three processes store, load, invalidate by tag
// and mark stale at random, with steps of the store that take their time and writers that die
// between their two: none of them says a word about tags, and the value that stands at the end has
// those of the first.
func TestTagsAreKeptInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		inBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			random := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rnd.IntN(n)
			}
			store := newTampered()
			for _, step := range []string{"Get", "Lease", "Fill", "Claim"} {
				slow := func(context.Context) error {
					time.Sleep(time.Duration(random(20)) * time.Millisecond)
					return nil
				}
				store.onto(step, slow)
				store.past(step, slow)
			}
			var all [3]cacheOf
			for i := range all {
				opts := cacheguard.Options[string]{TTL: time.Minute, StaleIfError: time.Hour}
				if random(2) == 0 {
					opts.Local = cacheguard.Local[string]{Entries: 10}
				}
				all[i] = openOn(t, cacheguard.Store(store), opts)
			}
			first := cacheguard.Entry[string]{Value: "old", Tags: []string{"tag"}}
			must(t, all[0].SetEntry(t.Context(), "k", first))
			ways := slices.Sorted(maps.Keys(storing))
			act := func(c cacheOf) error {
				switch n := random(len(ways) + 3); n {
				case len(ways):
					return c.InvalidateTags(t.Context(), "tag")
				case len(ways) + 1:
					return c.MarkStale(t.Context(), "k")
				case len(ways) + 2:
					_, err := store.Claim(t.Context(), cacheguard.Key{Cache: "behave", Key: "k"},
						cacheguard.ID{byte(random(256))}, 30*time.Millisecond)
					return err
				default:
					return storing[ways[n]].store(t.Context(), c,
						cacheguard.Entry[string]{Value: "new"})
				}
			}
			var callers sync.WaitGroup
			for range 6 {
				callers.Go(func() {
					for range 6 {
						time.Sleep(time.Duration(random(40)) * time.Millisecond)
						if err := act(all[random(len(all))]); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			if _, err := all[0].Refresh(t.Context(), "k", constant("last")); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			for _, want := range []cacheguard.Status{cacheguard.StatusHit, cacheguard.StatusMiss} {
				for i, c := range all {
					if r, err := c.Peek(t.Context(), "k"); r.Status != want || err != nil {
						t.Errorf("cache %d: %+v, %v; want %v", i, r, err, want)
					}
				}
				must(t, all[1].InvalidateTags(t.Context(), "tag"))
			}
		})
	}
}
