package coretest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// breaking is a store with circuit breakers.
type breaking struct{ cacheguard.Store }

func (breaking) Breakers() (open, all int) { return 1, 2 }

func TestStats(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c := openOn(t, breaking{store},
			cacheguard.Options[string]{MaxLoads: 1, Local: cacheguard.Local[string]{Entries: 10}})
		check := func(what string, want cacheguard.Stats) {
			t.Helper()
			want.BreakersOpen, want.Breakers = 1, 2
			synctest.Wait()
			if got := c.Stats(); got != want {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		}
		if err := store.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("nothing to do", cacheguard.Stats{})
		gate := make(chan struct{})
		load := func(context.Context) (string, error) {
			<-gate
			return "v", nil
		}
		var calling sync.WaitGroup
		get := func(key string) { calling.Go(func() { _, _ = c.Get(t.Context(), key, load) }) }
		get("a")
		synctest.Wait()
		get("a")
		get("a")
		get("b")
		calling.Go(func() { _, _ = c.Refresh(t.Context(), "c", load) })
		check("three callers for one key, two keys that wait",
			cacheguard.Stats{LoadsRunning: 1, LoadsQueued: 2, Flights: 3, Callers: 5})
		close(gate)
		calling.Wait()
		// Keys may happen to share an epoch, which can cost an insertion.
		if n := c.Stats().LocalEntries; n < 1 || n > 3 {
			t.Errorf("three keys are %d entries of the local tier", n)
		}
	})
}

// undemanding is an observer that can do without hits of the local tier, and attaches.
type undemanding struct {
	tracing
	told  bool
	stats func() cacheguard.Stats
	gone  int
}

func (o *undemanding) LocalHitsUntold() bool { return !o.told }
func (o *undemanding) Attach(cache string, stats func() cacheguard.Stats) func() {
	o.stats = stats
	return func() { o.gone++ }
}

// Hits of the local tier are told one by one or counted, never both, however they are asked for.
func TestLocalHitsAreToldOrCounted(t *testing.T) {
	for name, c := range map[string]struct {
		observer func(o *undemanding) cacheguard.Observer
		told     bool
	}{
		"counted": {func(o *undemanding) cacheguard.Observer { return o }, false},
		"told": {
			func(o *undemanding) cacheguard.Observer { o.told = true; return o }, true,
		},
		"both can do": {func(o *undemanding) cacheguard.Observer {
			return cacheguard.Observers(o, &undemanding{})
		}, false},
		"the other can't": {func(o *undemanding) cacheguard.Observer {
			return cacheguard.Observers(o, &undemanding{told: true})
		}, true},
		"the other is old": {func(o *undemanding) cacheguard.Observer {
			return cacheguard.Observers(o, &tracing{})
		}, true},
	} {
		for options, opts := range map[string]cacheguard.Options[string]{
			"bare":  {},
			"clone": {Local: cacheguard.Local[string]{Clone: strings.Clone}},
			"early": {EarlyRefresh: 1},
		} {
			inBubble(t, name+"/"+options, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				defer store.Close()
				o := &undemanding{}
				opts := opts
				opts.Observer, opts.Local.Entries = c.observer(o), 10
				cache := openOn(t, store, opts)
				if err := store.Warm(t.Context()); err != nil {
					t.Fatal(err)
				}
				nothing := func(context.Context) (string, error) {
					return "", cacheguard.ErrNotFound
				}
				value := func(context.Context) (string, error) { return "v", nil }
				// In the bubble it takes no time, so that there is no early refresh.
				_, _ = cache.Get(t.Context(), "v", value)
				_, _ = cache.Get(t.Context(), "nothing", nothing)
				for range 2 {
					_, _ = cache.Get(t.Context(), "v", value)
					_, _ = cache.GetResult(t.Context(), "v", value)
					_, _ = cache.Get(t.Context(), "nothing", value)
				}
				synctest.Wait()
				s := o.stats()
				counted := []int{int(s.LocalHits), int(s.LocalNegativeHits)}
				told := []int{0, 0}
				for _, e := range o.events {
					switch {
					case e.Kind != cacheguard.EventHit:
					case !e.Local:
						t.Errorf("a hit of the store: %+v", e)
					case e.NotFound:
						told[1]++
					default:
						told[0]++
					}
				}
				want, none := []int{4, 2}, []int{0, 0}
				if c.told {
					told, counted = counted, told
				}
				if !slices.Equal(counted, want) || !slices.Equal(told, none) {
					t.Errorf("in one way there are %v hits, in the other %v; want %v and none",
						counted, told, want)
				}
				if cache.Close(); o.gone != 1 {
					t.Errorf("detached %d times", o.gone)
				}
				if cache.Close(); o.gone != 1 {
					t.Errorf("detached %d times by two calls of Close", o.gone)
				}
			})
		}
	}
}

// The counting must cost no allocation.
func TestUntoldHitsAllocateNothing(t *testing.T) {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	c := openOn(t, store, cacheguard.Options[string]{
		Observer: &undemanding{}, Local: cacheguard.Local[string]{Entries: 10},
	})
	load := func(context.Context) (string, error) { return "v", nil }
	ctx := t.Context()
	get := func() { _, _ = c.Get(ctx, "k", load) }
	get()
	get()
	if n := testing.AllocsPerRun(100, get); n != 0 {
		t.Errorf("a local hit costs %v allocations", n)
	}
}
