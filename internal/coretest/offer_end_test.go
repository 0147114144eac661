package coretest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// A load that has the only slot may ask for a value whose stale offer ends before SoftTimeout is
// over. The load for this value then goes on without a slot, because the two would wait for each
// other.
func TestOfferThatEndsInsideALoad(t *testing.T) {
	type get = func(ctx context.Context, c *cacheguard.Cache[string]) (string, error)
	for name, inner := range map[string]get{
		"Get": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			return c.Get(ctx, "inner", returning("new"))
		},
		"GetMany": func(ctx context.Context, c *cacheguard.Cache[string]) (string, error) {
			got, err := c.GetMany(ctx, []string{"inner"}, func(
				context.Context, []string,
			) (map[string]string, error) {
				return map[string]string{"inner": "new"}, nil
			})
			return got["inner"], err
		},
	} {
		for _, joins := range []bool{false, true} {
			what := name + " leads"
			if joins {
				what = name + " joins"
			}
			inBubble(t, what, func(t *testing.T) {
				c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
					cacheguard.Options[string]{
						TTL: time.Second, StaleIfError: time.Second,
						SoftTimeout: 100 * time.Millisecond, MaxLoads: 1, LoadTimeout: time.Minute})
				must(t, c.Set(t.Context(), "inner", "old"))
				time.Sleep(1950 * time.Millisecond)
				proceed := make(chan struct{})
				outer := getting(t.Context(), t, c, "outer", func(
					ctx context.Context,
				) (string, error) {
					<-proceed
					return inner(ctx, c)
				})
				outer.waits()
				var other *begun[string]
				if joins {
					other = getting(t.Context(), t, c, "inner", returning("new"))
					other.waits()
				}
				close(proceed)
				if v, err := outer.later(); v == "" || err != nil || outer.took > time.Second {
					t.Errorf("the outer load gave %q, %v after %v", v, err, outer.took)
				}
				if joins {
					if v, err := other.later(); v == "" || err != nil || other.took > time.Second {
						t.Errorf("the other caller got %q, %v after %v", v, err, other.took)
					}
				}
				time.Sleep(time.Second)
				slotsAreFree(t, c, 1)
			})
		}
	}
}

// Calls inside loads join flights whose leaders still look the key up. They take the offers after
// SoftTimeout, so the flights need no further slots.
func TestJoinBeforeTheOfferKeepsToMaxLoads(t *testing.T) {
	for _, during := range []bool{false, true} {
		inBubble(t, fmt.Sprint("during the look-up: ", during), func(t *testing.T) {
			store := newTampered()
			c := openLookingFirst(t, cacheguard.Store(store), cacheguard.Options[int]{
				TTL: time.Second, StaleIfError: time.Hour, SoftTimeout: 10 * time.Millisecond,
				MaxLoads: 1})
			for i := range 10 {
				must(t, c.Set(t.Context(), fmt.Sprint("inner", i), 1))
			}
			time.Sleep(2 * time.Second)
			o := ones(t, 10*time.Second)
			for i := range 10 {
				inner := fmt.Sprint("inner", i)
				gate, joins := make(chan struct{}), make(chan struct{})
				outer := getting(t.Context(), t, c, fmt.Sprint("outer", i), func(
					ctx context.Context,
				) (int, error) {
					<-joins
					return c.Get(ctx, inner, o.Load("inner"))
				})
				synctest.Wait()
				var once atomic.Bool
				store.onto("Get", func(context.Context) error {
					if once.CompareAndSwap(false, true) {
						<-gate
					}
					return nil
				})
				getting(t.Context(), t, c, inner, o.Load("inner"))
				synctest.Wait() // it looks the key up
				if during {
					close(joins)
					synctest.Wait()
					close(gate)
				} else {
					close(gate)
					synctest.Wait()
					close(joins)
				}
				if v, err := outer.later(); v != 1 || err != nil {
					t.Fatal(v, err)
				}
			}
			if n := o.MostRunning(); n > 1 {
				t.Errorf("%d loads at a time with MaxLoads 1", n)
			}
		})
	}
}
