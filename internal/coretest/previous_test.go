package coretest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A call sees a stale value and waits for another load before its own load begins. If the value is
// invalidated meanwhile, the call's load must not see it. Otherwise an origin with a coarse
// validator (a date, a weak tag) could say that the value is unchanged and bring it back.
func TestLoadSeesNothingInvalidated(t *testing.T) {
	for name, invalidate := range map[string]func(context.Context, *cacheguard.Cache[string]) error{
		"key": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		},
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "t")
		},
		"all": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				here, there := openOn(t, store, cacheguard.Options[string]{}),
					openOn(t, store, cacheguard.Options[string]{})
				v1 := entry{Value: "v1", TTL: time.Second, Keep: time.Hour, Tags: []string{"t"}}
				if r, err := gettingEntry(t.Context(), t, here, "k",
					returning(v1)).now(); r.Value != "v1" || err != nil {
					t.Fatal(r, err)
				}
				<-time.After(2 * time.Second)

				o := newScriptedOrigin[entry](t)
				leader := gettingEntry(t.Context(), t, here, "k", o.load)
				load := o.next()
				seen := make(chan cacheguard.Result[string], 1)
				go func() {
					r, err := there.GetEntry(t.Context(), "k", func(
						_ context.Context, prev cacheguard.Result[string],
					) (entry, error) {
						seen <- prev
						return entry{Value: "v2"}, nil
					})
					if r.Value != "v2" || err != nil {
						t.Errorf("the waiter got %+v, %v", r, err)
					}
				}()
				synctest.Wait()
				if err := invalidate(t.Context(), there); err != nil {
					t.Fatal(err)
				}
				load.gives(entry{Value: "from before", Tags: []string{"t"}})
				if _, err := leader.now(); err != nil {
					t.Fatal(err)
				}
				if prev := <-seen; prev.Status != cacheguard.StatusMiss || prev.Degraded {
					t.Errorf("the load of who had waited saw %+v", prev)
				}
			})
		})
	}
}

// racedStore does something once, between a look-up and the question for the lease.
type racedStore struct {
	cacheguard.Store
	do func()
}

func (s *racedStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	if do := s.do; do != nil {
		s.do = nil
		do()
	}
	return s.Store.Lease(ctx, k, ask)
}

// Nor what was invalidated, in another process, after it was seen and before the lease was granted.
func TestLoadSeesNothingInvalidatedBeforeItsGrant(t *testing.T) {
	for name, c := range map[string]struct {
		change func(context.Context, *cacheguard.Cache[string]) error
		sees   string
	}{
		"nothing": {
			func(context.Context, *cacheguard.Cache[string]) error { return nil }, "v1",
		},
		"another tag": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "u")
		}, "v1"},
		"key": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		}, ""},
		"tag": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "t")
		}, ""},
		"all": {func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateAll(ctx)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				raced := &racedStore{Store: store}
				here, there := openOn(t, raced, cacheguard.Options[string]{}),
					openOn(t, store, cacheguard.Options[string]{})
				v1 := entry{Value: "v1", TTL: time.Second, Keep: time.Hour, Tags: []string{"t"}}
				if r, err := gettingEntry(t.Context(), t, there, "k",
					returning(v1)).now(); r.Value != "v1" || err != nil {
					t.Fatal(r, err)
				}
				<-time.After(2 * time.Second)
				raced.do = func() {
					if err := c.change(t.Context(), there); err != nil {
						t.Error(err)
					}
				}
				r, err := here.GetEntry(t.Context(), "k", func(
					_ context.Context, prev cacheguard.Result[string],
				) (entry, error) {
					if prev.Value != c.sees {
						t.Errorf("the load saw %+v; want %q", prev, c.sees)
					}
					return entry{Value: "v2"}, nil
				})
				if r.Value != "v2" || err != nil {
					t.Errorf("GetEntry: %+v, %v", r, err)
				}
			})
		})
	}
}
