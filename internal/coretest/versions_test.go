package coretest_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/cacheguard/redisstore"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// stock4 and stock5 are one type in two releases: the newer one has renamed a field.
type (
	stock4 struct{ Title, Stock string }
	stock5 struct{ Title, Amount string }
)

// warehouse is the origin of both.
type warehouse struct {
	amount int
	loads  [2]int
}

func (w *warehouse) load4(context.Context) (stock4, error) {
	w.loads[0]++
	return stock4{"Tea", fmt.Sprint(w.amount)}, nil
}

func (w *warehouse) load5(context.Context) (stock5, error) {
	w.loads[1]++
	return stock5{"Tea", fmt.Sprint(w.amount)}, nil
}

// eachStore runs a test on a store in the process, and on Redis where there is one.
func eachStore(t *testing.T, test func(t *testing.T, store func() cacheguard.Store)) {
	t.Run("memstore", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		test(t, func() cacheguard.Store { return store })
	})
	t.Run("redisstore", func(t *testing.T) {
		addr, prefix := redistest.Shared(t).Addr(), "versions:"+t.Name()
		test(t, func() cacheguard.Store {
			rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
			store, err := redisstore.New(rdb,
				redisstore.Options{Prefix: prefix, OpTimeout: time.Minute})
			must(t, err)
			t.Cleanup(func() { _, _ = store.Close(), rdb.Close() })
			return store
		})
	})
}

// Two releases that take turns have one load each, as long as nothing changes, and both see each
// change that either makes.
func TestReleasesTakeTurns(t *testing.T) {
	eachStore(t, func(t *testing.T, store func() cacheguard.Store) {
		w := &warehouse{amount: 1}
		four := openOn(t, store(), cacheguard.Options[stock4]{Version: 4, TTL: time.Hour})
		five := openOn(t, store(), cacheguard.Options[stock5]{Version: 5, TTL: time.Hour})
		get := func() {
			t.Helper()
			a, err := four.Get(t.Context(), "k", w.load4)
			must(t, err)
			b, err := five.Get(t.Context(), "k", w.load5)
			must(t, err)
			if want := fmt.Sprint(w.amount); a != (stock4{"Tea", want}) ||
				b != (stock5{"Tea", want}) {
				t.Fatalf("%+v, %+v; want %s of both", a, b, want)
			}
		}
		for range 1000 {
			get()
		}
		if w.loads != [2]int{1, 1} {
			t.Errorf("%v loads in 1,000 turns; want one in each release", w.loads)
		}
		tagged4 := func(
			context.Context, cacheguard.Result[stock4],
		) (cacheguard.Entry[stock4], error) {
			v, err := w.load4(t.Context())
			return cacheguard.Entry[stock4]{Value: v, Tags: []string{"tea"}}, err
		}
		tagged5 := func(
			context.Context, cacheguard.Result[stock5],
		) (cacheguard.Entry[stock5], error) {
			v, err := w.load5(t.Context())
			return cacheguard.Entry[stock5]{Value: v, Tags: []string{"tea"}}, err
		}
		for name, change := range map[string]func() error{
			"Invalidate, 4":    func() error { return four.Invalidate(t.Context(), "k") },
			"Invalidate, 5":    func() error { return five.Invalidate(t.Context(), "k") },
			"MarkStale, 4":     func() error { return four.MarkStale(t.Context(), "k") },
			"MarkStale, 5":     func() error { return five.MarkStale(t.Context(), "k") },
			"InvalidateAll, 4": func() error { return four.InvalidateAll(t.Context()) },
			"InvalidateTags, 5": func() error {
				if _, err := four.GetEntry(t.Context(), "k", tagged4); err != nil {
					return err
				}
				_, err := five.GetEntry(t.Context(), "k", tagged5)
				w.amount++
				return cmp.Or(err, five.InvalidateTags(t.Context(), "tea"))
			},
			"Set, 4": func() error {
				return four.Set(t.Context(), "k", stock4{"Tea", fmt.Sprint(w.amount)})
			},
			"Set, 5": func() error {
				return five.Set(t.Context(), "k", stock5{"Tea", fmt.Sprint(w.amount)})
			},
			"Update, 4": func() error {
				_, err := four.Update(t.Context(), "k", func(ctx context.Context) (stock4, error) {
					// Which reads what was so before.
					if _, err := five.Get(ctx, "k", w.load5); err != nil {
						return stock4{}, err
					}
					w.amount++
					return w.load4(ctx)
				})
				return err
			},
			"Update, 5": func() error {
				_, err := five.Update(t.Context(), "k", func(ctx context.Context) (stock5, error) {
					if _, err := four.Get(ctx, "k", w.load4); err != nil {
						return stock5{}, err
					}
					w.amount++
					return w.load5(ctx)
				})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				must(t, four.Invalidate(t.Context(), "k"))
				if name != "InvalidateTags, 5" {
					get()
				}
				w.amount++
				must(t, change())
				get()
			})
		}
	})
}

// Without a version of its own a release reads what the one before it has stored. Releases that are
// no neighbours don't read one another's values either.
func TestVersionsOfOtherReleases(t *testing.T) {
	for _, c := range []struct {
		version int
		want    stock5
	}{
		{4, stock5{Title: "Tea"}}, {5, stock5{"Tea", "1"}}, {6, stock5{"Tea", "1"}},
		{7, stock5{"Tea", "1"}}, {0, stock5{"Tea", "1"}},
	} {
		t.Run(fmt.Sprint(c.version), func(t *testing.T) {
			store, w := memstore.New(memstore.Options{}), &warehouse{amount: 1}
			_, err := openOn(t, store, cacheguard.Options[stock4]{Version: 4}).Get(t.Context(), "k",
				w.load4)
			must(t, err)
			got, err := openOn(t, store,
				cacheguard.Options[stock5]{Version: c.version}).Get(t.Context(), "k", w.load5)
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestVersionIsChecked(t *testing.T) {
	for version, fine := range map[int]bool{-1: false, 0: true, 1_000_000: true, 1_000_001: false} {
		if _, err := cacheguard.New(memstore.New(memstore.Options{}),
			cacheguard.Options[string]{Name: "n", Version: version}); (err == nil) != fine {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
