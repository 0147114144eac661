package cacheguard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// TestLeaseThatIsOverIsNotBelieved: a process stands still between the answer that gives it a lease
// and its load, for longer than the lease. It doesn't begin a load beside that of the process which
// has the lease by then.
func TestLeaseThatIsOverIsNotBelieved(t *testing.T) {
	for _, many := range []bool{false, true} {
		for _, stop := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second} {
			t.Run(fmt.Sprint(many, stop), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const ttl = 3 * time.Second
					store := newTampered()
					there := openOn(t, store.Store, cacheguard.Options[string]{LeaseTTL: ttl})
					here := openOn(t, store, cacheguard.Options[string]{LeaseTTL: ttl})
					var loads, side atomic.Int64
					load := func(context.Context) (string, error) {
						loads.Add(1)
						if side.Add(1) > 1 {
							t.Error("two loads side by side")
						}
						defer side.Add(-1)
						<-time.After(20 * time.Second)
						return "v", nil
					}
					step := "Lease"
					if many {
						step = "LeaseMany"
					}
					store.past(step, func(context.Context) error {
						store.past(step, nil)
						<-time.After(stop)
						return nil
					})
					var late []*begun[string]
					if many {
						late = append(late, gettingMany(t, here, load))
					} else {
						late = append(late, getting(t.Context(), t, here, "k", load))
					}
					synctest.Wait()
					other := getting(t.Context(), t, there, "k", load)
					for _, call := range append(late, other) {
						<-call.done
						if v, err := call.now(); v != "v" || err != nil {
							t.Errorf("%q, %v", v, err)
						}
					}
					if n := loads.Load(); n != 1 { // of k
						t.Errorf("%d loads; want 1", n)
					}
				})
			})
		}
	}
}

// gettingMany begins a GetMany of k and another key, and returns the value of k. Both are of one
// load.
func gettingMany(t *testing.T, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string]) *begun[string] {
	return beginCall(t, func() (string, error) {
		values, err := c.GetMany(t.Context(), []string{"k", "l"}, func(ctx context.Context, missing []string) (map[string]string, error) {
			if !slices.Contains(missing, "k") {
				return map[string]string{"l": "v"}, nil
			}
			v, err := load(ctx)
			return map[string]string{"k": v, "l": v}, err
		})
		return values["k"], err
	})
}

// hungLease is a store that answers no question for a lease, and says so after a while.
type hungLease struct{ cacheguard.Store }

func (hungLease) Lease(context.Context, cacheguard.Key, cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
	time.Sleep(time.Second)
	return cacheguard.LeaseAnswer{}, errors.New("no answer")
}

// A stale value whose window ends while the store doesn't answer is none any more: with FailOpen
// there is a load.
func TestStaleValueThatEndsWhileTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		defer store.Close()
		c, err := cacheguard.New(hungLease{store}, cacheguard.Options[int]{Name: "ends", TTL: time.Minute, Jitter: -1, StaleIfError: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Set(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(69*time.Second + 500*time.Millisecond)
		r, err := c.GetResult(t.Context(), "k", func(context.Context) (int, error) { return 2, nil })
		if r.Value != 2 || err != nil {
			t.Errorf("got %+v, %v; want what a load returns", r, err)
		}
	})
}
