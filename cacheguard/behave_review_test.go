package cacheguard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// Where calls for many keys meet budgets, patience, other processes' claims and callers who leave.

// A load that asks for many keys holds the only slot: what it asks for does without one, although a stale value could
// have let it go on.
func TestManyInsideALoadWithTheOnlySlot(t *testing.T) {
	for _, stale := range []bool{false, true} {
		inBubble(t, fmt.Sprint("stale ", stale), func(t *testing.T) {
			c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})), cacheguard.Options[string]{
				TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond, MaxLoads: 1})
			if stale {
				if err := c.Set(t.Context(), "x", "old"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			outer := getting(t.Context(), t, c, "outer", func(ctx context.Context) (string, error) {
				got, err := c.GetMany(ctx, []string{"x", "y"}, func(_ context.Context, missing []string) (map[string]string, error) {
					return map[string]string{"x": "1", "y": "2"}, nil
				})
				return got["x"] + got["y"], err
			})
			outer.gives("12", nil)
		})
	}
}

// The same for a Refresh that joins one which was begun behind its back, and waits for a slot.
func TestRefreshInsideALoadWithTheOnlySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})), cacheguard.Options[string]{
			TTL: time.Second, StaleWhileRevalidate: time.Hour, MaxLoads: 1})
		if err := c.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		outer := getting(t.Context(), t, c, "outer", func(ctx context.Context) (string, error) {
			if v, err := c.Get(ctx, "k", returning("new")); v != "old" || err != nil {
				t.Errorf("the stale value: %q, %v", v, err)
			}
			time.Sleep(time.Millisecond) // its refresh waits for a slot
			return c.Refresh(ctx, "k", returning("new"))
		})
		if v, err := outer.later(); v != "new" || err != nil || outer.took > 2*time.Millisecond {
			t.Errorf("%q, %v after %v", v, err, outer.took)
		}
	})
}
