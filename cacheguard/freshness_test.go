package cacheguard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/guardtest"
	"github.com/cacheguard/cacheguard/internal/frame"
)

// When messages may have been lost, nobody joins a load from before that.
func TestRestoredSealsFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		c := lookingFirst(openOn(t, store, cacheguard.Options[string]{}))
		o := newScriptedOrigin[string](t)
		first := getting(t.Context(), t, c, "k", o.load)
		load := o.next()
		store.says(cacheguard.Message{Kind: cacheguard.MessageRestored})
		second := getting(t.Context(), t, c, "k", o.load)
		second.waits()
		if n := store.steps("Get"); n != 2 {
			t.Errorf("%d look-ups; the second caller has joined the first one's load", n)
		}
		load.gives("v")
		first.gives("v", nil)
		second.gives("v", nil)
	})
}

// Invalidate seals what has begun while the store was told of it, also if that failed.
func TestFailedInvalidateSeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := lookingFirst(openOn(t, store, cacheguard.Options[string]{}))
		o := newScriptedOrigin[string](t)
		var meanwhile *begun[string]
		var load *scriptedLoad[string]
		store.onto("Invalidate", func(context.Context) error {
			store.onto("Invalidate", nil)
			meanwhile = getting(context.Background(), t, c, "k", o.load)
			load = o.next()
			return errTampered
		})
		if err := c.Invalidate(t.Context(), "k"); err == nil {
			t.Error("Invalidate has not failed")
		}
		next := getting(t.Context(), t, c, "k", o.load)
		next.waits()
		if n := store.steps("Get"); n != 2 {
			t.Errorf("%d look-ups; the next caller has joined a load from before Invalidate returned", n)
		}
		load.gives("v") // which may be from before what the store could not be told of
		meanwhile.gives("v", nil)
		o.next().gives("w")
		next.gives("w", nil)
	})
}

// A lease that was renewed once lasts for its time since then, not for that and what was left
// before.
func TestRenewedLeaseEndsInTime(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, c *cacheguard.Cache[string], o *scriptedOrigin[string]){
		"Get": func(t *testing.T, c *cacheguard.Cache[string], o *scriptedOrigin[string]) {
			getting(t.Context(), t, c, "k", o.load)
		},
		"Update": func(t *testing.T, c *cacheguard.Cache[string], o *scriptedOrigin[string]) {
			beginCall(t, func() (string, error) { return c.Update(t.Context(), "k", o.load) })
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			store, events := newTampered(), &guardtest.Recorder{}
			c := openOn(t, store, cacheguard.Options[string]{LeaseTTL: 3 * time.Second, Observer: events})
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

// While another process refreshes a stale value, reads of it ask for its lease once.
func TestHeldIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		opts := cacheguard.Options[string]{TTL: time.Second, StaleWhileRevalidate: time.Minute}
		a, b := openOn(t, store, opts), lookingFirst(openOn(t, store, opts))
		if err := a.Set(t.Context(), "k", "old"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, a, "k", o.load).gives("old", nil)
		load := o.next()
		before := store.steps("Lease") + store.steps("LeaseMany")
		for range 1000 {
			getting(t.Context(), t, b, "k", o.load).gives("old", nil)
			synctest.Wait()
		}
		if n := store.steps("Lease") + store.steps("LeaseMany") - before; n != 1 {
			t.Errorf("1000 reads of a stale value asked for its lease %d times", n)
		}
		load.gives("new")
	})
}

// A key that is asked for twice in one call has one caller.
func TestGetManyRepeatedAtLimit(t *testing.T) {
	manyBubble(t, cacheguard.Options[string]{MaxWaiters: 1}, func(t *testing.T, _ *tampered, a, _ *cacheguard.Cache[string], o *bulk) {
		call := getMany(t.Context(), t, a, o, "k", "k")
		o.next("k").gives("v")
		wantMany(t, call, []string{"kv"}, nil)
	})
}

// reseal stores the value of a key again, with another header and tags.
func reseal(t *testing.T, store cacheguard.Store, key string, change func(*frame.Header)) {
	t.Helper()
	k := cacheguard.Key{Cache: "behave", Key: key}
	raw, _, err := store.Get(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, body, err := frame.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	g, err := store.Claim(t.Context(), k, cacheguard.ID{7}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	h.ID = g.Token
	change(&h)
	if ans, err := store.Fill(t.Context(), k, g, frame.New(h, body), time.Hour); ans != cacheguard.FillStored || err != nil {
		t.Fatal(ans, err)
	}
}

// A value whose load began in the very microsecond in which its tag or its cache was invalidated is
// from before that.
func TestTieIsAMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{})
		for i, invalidate := range []func() error{
			func() error { return c.InvalidateAll(t.Context()) },
			func() error { return c.InvalidateTags(t.Context(), "tag") },
		} {
			if err := c.SetEntry(t.Context(), "k", cacheguard.Entry[string]{Value: "old", Tags: []string{"tag"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if err := invalidate(); err != nil {
				t.Fatal(err)
			}
			of, err := store.Generations(t.Context(), "behave", []string{"tag"})
			if err != nil {
				t.Fatal(err)
			}
			for after, want := range []string{"new", "old"} { // in that microsecond, and in the next
				reseal(t, store, "k", func(h *frame.Header) { h.Stamp = of[i] + int64(after) })
				getting(t.Context(), t, c, "k", returning("new")).gives(want, nil)
				if want == "new" {
					if err := c.SetEntry(t.Context(), "k", cacheguard.Entry[string]{Value: "old", Tags: []string{"tag"}}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

// A value from the future is good for nothing: neither fresh nor stale.
func TestAgeBelowZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store, cacheguard.Options[string]{TTL: time.Hour, StaleIfError: time.Hour, StaleWhileRevalidate: time.Hour})
		for ahead, want := range map[time.Duration]string{200 * time.Millisecond: "old", time.Second: "new", 48 * time.Hour: "new"} {
			if err := c.Set(t.Context(), "k", "old"); err != nil {
				t.Fatal(err)
			}
			reseal(t, store, "k", func(h *frame.Header) { h.Created = store.Now().Add(ahead) })
			getting(t.Context(), t, c, "k", returning("new")).gives(want, nil)
		}
	})
}
