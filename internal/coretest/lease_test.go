package coretest_test

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
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
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
func gettingMany(
	t *testing.T, c *cacheguard.Cache[string], load cacheguard.LoadFunc[string],
) *begun[string] {
	return beginCall(t, func() (string, error) {
		values, err := c.GetMany(t.Context(), []string{"k", "l"}, func(
			ctx context.Context, missing []string,
		) (map[string]string, error) {
			if !slices.Contains(missing, "k") {
				return map[string]string{"l": "v"}, nil
			}
			v, err := load(ctx)
			return map[string]string{"k": v, "l": v}, err
		})
		return values["k"], err
	})
}

// A lease that was renewed once lasts for its time since then, not for that and what was left
// before.
func TestRenewedLeaseEndsInTime(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, c *cacheguard.Cache[string],
		o *scriptedOrigin[string]){
		"Get": func(t *testing.T, c *cacheguard.Cache[string], o *scriptedOrigin[string]) {
			getting(t.Context(), t, c, "k", o.load)
		},
		"Update": func(t *testing.T, c *cacheguard.Cache[string], o *scriptedOrigin[string]) {
			beginCall(t, func() (string, error) { return c.Update(t.Context(), "k", o.load) })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store, events := newTampered(), &guardtest.Recorder{}
			c := openOn(t, store,
				cacheguard.Options[string]{LeaseTTL: 3 * time.Second, Observer: events})
			o := newScriptedOrigin[string](t)
			ask(t, c, o)
			load := o.next()
			renewed := false
			store.onto("Renew", func(context.Context) error {
				if !renewed {
					renewed = true
					return nil
				}
				return errTampered
			})
			time.Sleep(3900 * time.Millisecond) // renewed after one second: good until the fourth
			synctest.Wait()
			if n := events.Count(cacheguard.EventLeaseLost); n != 0 || !renewed {
				t.Errorf("the lease was lost %d times before its end", n)
			}
			time.Sleep(600 * time.Millisecond)
			synctest.Wait()
			if n := events.Count(cacheguard.EventLeaseLost); n != 1 {
				t.Errorf("the lease was lost %d times after its end", n)
			}
			load.gives("v")
		})
	}
}

// The time of a renewed lease counts from before the renewal was sent. Its answer may be on its way
// for long, and the lease runs out meanwhile.
func TestTimeOfARenewalCountsFromItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newTampered(), &guardtest.Recorder{}
		c := openOn(t, store,
			cacheguard.Options[string]{LeaseTTL: 3 * time.Second, Observer: events})
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		// Sent after one second, answered after three.
		store.past("Renew", func(context.Context) error {
			store.onto("Renew", fails(always))
			store.past("Renew", nil)
			<-time.After(2 * time.Second)
			return nil
		})
		time.Sleep(3900 * time.Millisecond)
		synctest.Wait()
		if n := events.Count(cacheguard.EventLeaseLost); n != 0 ||
			events.Count(cacheguard.EventRenewed) != 1 {
			t.Errorf("the lease was lost %d times before its end", n)
		}
		time.Sleep(600 * time.Millisecond) // good until the fourth second
		synctest.Wait()
		if n := events.Count(cacheguard.EventLeaseLost); n != 1 {
			t.Errorf("the lease was lost %d times after its end", n)
		}
		load.gives("v")
	})
}

// A lease that can't be renewed counts as lost at the moment of its end, and not only when the next
// try is due.
func TestLeaseThatCantBeRenewedEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newTampered(), &guardtest.Recorder{}
		store.onto("Renew", fails(always))
		c := openOn(t, store,
			cacheguard.Options[string]{LeaseTTL: 3 * time.Second, Observer: events})
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		for _, at := range []struct {
			after time.Duration
			lost  int
		}{{3*time.Second - time.Microsecond, 0}, {2 * time.Microsecond, 1}} {
			time.Sleep(at.after)
			synctest.Wait()
			if n := events.Count(cacheguard.EventLeaseLost); n != at.lost {
				t.Errorf("the lease was lost %d times; want %d", n, at.lost)
			}
		}
		load.gives("v")
	})
}

// vague is a store whose answers to renewals say nothing.
type vague struct{ cacheguard.Store }

func (vague) Renew(
	context.Context, cacheguard.Key, cacheguard.Grant, time.Duration,
) (cacheguard.Holding, error) {
	return cacheguard.HoldingOther + 1, nil
}

// An answer to a renewal that the interface doesn't have renews nothing.
func TestUnknownHoldingRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &guardtest.Recorder{}
		c := openOn(t, vague{memstore.New(memstore.Options{})},
			cacheguard.Options[string]{LeaseTTL: 3 * time.Second, Observer: events})
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		time.Sleep(3100 * time.Millisecond)
		synctest.Wait()
		if renewed, lost := events.Count(cacheguard.EventRenewed),
			events.Count(cacheguard.EventLeaseLost); renewed != 0 || lost != 1 {
			t.Errorf("renewed %d times, lost %d times", renewed, lost)
		}
		load.gives("v")
	})
}

// tardyStore answers the first question for a lease when that has ended, and loses the answer to
// the first release.
type tardyStore struct {
	cacheguard.Store
	late     time.Duration
	asked    []cacheguard.ID
	released []cacheguard.ID
}

func (s *tardyStore) Lease(
	ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk,
) (cacheguard.LeaseAnswer, error) {
	answer, err := s.Store.Lease(ctx, k, ask)
	if s.asked = append(s.asked, ask.Token); len(s.asked) == 1 {
		<-time.After(s.late)
	}
	return answer, err
}

func (s *tardyStore) Release(ctx context.Context, k cacheguard.Key, token cacheguard.ID) error {
	if s.released = append(s.released, token); len(s.released) == 1 {
		return errors.New("the answer is lost")
	}
	return s.Store.Release(ctx, k, token)
}

// A lease that came too late is given back, again if the store may not have heard of it. Meanwhile
// the key has the next lease, which is not the one that goes.
func TestReleaseIsOfItsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tardyStore{Store: memstore.New(memstore.Options{}), late: 2 * time.Second}
		c := openOn(t, cacheguard.Store(store), cacheguard.Options[string]{LeaseTTL: time.Second})
		o := newScriptedOrigin[string](t)
		call := getting(t.Context(), t, c, "k", o.load)
		<-time.After(store.late)
		load := o.next()
		for len(store.released) < 2 { // in the background
			<-time.After(time.Millisecond)
		}
		load.gives("v")
		call.gives("v", nil)
		for _, token := range store.released {
			if token != store.asked[0] {
				t.Errorf("released %v, of the leases %v", store.released, store.asked)
			}
		}
		if r, err := c.Peek(t.Context(), "k"); r.Value != "v" || err != nil {
			t.Errorf("Peek: %+v, %v; want what was loaded", r, err)
		}
	})
}

// The time of a lease counts from its request. If the answer takes most of this time, the first
// renewal is due at once: otherwise another process gets the lease during the load.
func TestTimeOfALeaseCountsFromItsRequest(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{LeaseTTL: 3 * time.Second}
		slow, other := openOn(t, store, opts), openOn(t, cacheguard.Store(store.Store), opts)
		late := func(context.Context) error {
			time.Sleep(2500 * time.Millisecond)
			return nil
		}
		store.past("Lease", late)
		store.past("LeaseMany", late)
		time.Sleep(time.Millisecond)
		o := newScriptedOrigin[string](t)
		first := getting(t.Context(), t, slow, "k", o.load)
		time.Sleep(time.Second)
		second := getting(t.Context(), t, other, "k", o.load)
		time.Sleep(1600 * time.Millisecond)
		load := o.next()
		time.Sleep(2 * time.Second) // without a renewal the lease would be over
		load.gives("v")
		first.gives("v", nil)
		second.gives("v", nil)
		o.loads(1)
	})
}
