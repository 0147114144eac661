package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// largeValue is more than a message carries, so that who waits for it reads it from the store.
var largeValue = strings.Repeat("v", 8<<10)

// A caller that waits for a load gets the ending of this load. The ending of another load, which a
// late message may have, is only a reason to ask again: that load may have begun before the caller.
func TestEndingOfAnotherLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &speaking{tampered: newTampered()}
		awaited, another := cacheguard.ID{1}, cacheguard.ID{2}
		store.lease = func(cacheguard.LeaseAnswer) cacheguard.LeaseAnswer {
			return cacheguard.LeaseAnswer{
				State: cacheguard.LeaseHeld, Holder: awaited, Remaining: time.Minute,
			}
		}
		c := openOn(t, store, cacheguard.Options[string]{})
		call := getting(t.Context(), t, c, "k", returning("v"))
		call.waits()
		asked := store.steps("Lease")
		failed := func(load cacheguard.ID, text string) {
			store.says(cacheguard.Message{
				Kind: cacheguard.MessageOutcome, Key: "k", Load: load,
				Outcome: cacheguard.Outcome{Kind: cacheguard.OutcomeFailed, Text: text},
			})
		}
		failed(another, "of another load")
		call.waits()
		if n := store.steps("Lease") - asked; n != 1 {
			t.Errorf("after the other load's end the lease was asked for %d times; want 1", n)
		}
		failed(awaited, "of the awaited load")
		if _, err := call.now(); err == nil ||
			!strings.Contains(err.Error(), "of the awaited load") {
			t.Errorf("the caller got the error %v", err)
		}
	})
}

// A caller that comes after MarkStaleTags waits for a load from before it. The result of this load
// is marked, so the caller doesn't get it.
func TestAwaitedResultIsMarked(t *testing.T) {
	for name, value := range map[string]string{"small": "old", "large": largeValue} {
		inBubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			here, there := openOn(t, store, cacheguard.Options[string]{}),
				openOn(t, store, cacheguard.Options[string]{})
			o := newScriptedOrigin[entry](t)
			early := gettingEntry(t.Context(), t, here, "k", o.load)
			load := o.next()
			must(t, there.MarkStaleTags(t.Context(), "soft"))
			late := gettingEntry(t.Context(), t, there, "k", o.load)
			late.waits()
			o.idle()
			load.gives(entry{Value: value, TTL: time.Hour, SoftTags: []string{"soft"}})
			if r, err := early.now(); r.Value != value || err != nil {
				t.Errorf("the load's own caller got %d bytes, %v", len(r.Value), err)
			}
			late.waits()
			o.next().gives(entry{Value: "new", TTL: time.Hour, SoftTags: []string{"soft"}})
			if r, err := late.now(); r.Value != "new" || err != nil {
				t.Errorf("the caller that came after the mark got %d bytes, %v", len(r.Value), err)
			}
		})
	}
}

// A load's result is for its own caller, and is kept for the next load. A process that has waited
// for this load doesn't give the result to its callers, even if it reads it so late that it is no
// longer remembered that the result is unshared.
func TestAwaitedResultIsUnshared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTampered()
		here, there := openOn(t, store.Store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		o := newScriptedOrigin[entry](t)
		own := gettingEntry(t.Context(), t, here, "k", o.load)
		load := o.next()
		other := gettingEntry(t.Context(), t, there, "k", o.load)
		other.waits()
		store.onto("Get", func(context.Context) error { <-time.After(time.Second); return nil })
		load.gives(entry{Value: largeValue, NoShare: true, TTL: time.Millisecond, Keep: time.Hour})
		if r, err := own.now(); r.Value != largeValue || err != nil {
			t.Errorf("the load's own caller got %d bytes, %v", len(r.Value), err)
		}
		<-time.After(2 * time.Second)
		o.next().gives(entry{Value: "of the other"})
		if r, err := other.now(); r.Value != "of the other" || err != nil {
			t.Errorf("the other caller got %d bytes, %v", len(r.Value), err)
		}
	})
}

// Whatever a store says of the time left of a lease, a caller that waits for this lease asks again
// from time to time, and doesn't keep the store busy.
func TestTimeLeftOfALease(t *testing.T) {
	for name, left := range map[string]time.Duration{
		"not known": 0, "negative": -time.Hour, "the least": math.MinInt64,
		"the most": math.MaxInt64,
	} {
		inBubble(t, name, func(t *testing.T) {
			store := &speaking{tampered: newTampered()}
			store.lease = func(cacheguard.LeaseAnswer) cacheguard.LeaseAnswer {
				return cacheguard.LeaseAnswer{
					State: cacheguard.LeaseHeld, Holder: cacheguard.ID{1}, Remaining: left,
				}
			}
			store.onto("Lease", func(context.Context) error {
				if store.steps("Lease") > 10000 { // an endless loop would be the end of the test
					return errTampered
				}
				return nil
			})
			c := openOn(t, store,
				cacheguard.Options[string]{LoadTimeout: 5 * time.Second, LeaseTTL: time.Second})
			_, err := getting(t.Context(), t, c, "k", returning("v")).later()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller got %v", err)
			}
			if n := store.steps("Lease"); n > 500 {
				t.Errorf("the lease was asked for %d times in eleven seconds", n)
			}
		})
	}
}

// silenced is a store that knows whether messages arrive.
type silenced struct{ *listenStore }

func (s silenced) Listening() bool { return !s.deaf.Load() }

// While a process waits for a load, its messages stop arriving. From then on it asks from time to
// time, so the lost message about the load's end doesn't cost the time left of the lease.
func TestMessagesStopDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store, opts := silenced{&listenStore{Store: shared}}, cacheguard.Options[string]{
			LeaseTTL: 30 * time.Second,
		}
		here, there := openOn(t, cacheguard.Store(shared), opts),
			openOn(t, cacheguard.Store(store), opts)
		o := newScriptedOrigin[string](t)
		getting(t.Context(), t, here, "k", o.load)
		load := o.next()
		call := getting(t.Context(), t, there, "k", o.load)
		call.waits()
		store.lose()
		load.gives("v")
		if v, err := call.later(); v != "v" || err != nil || call.took > 100*time.Millisecond {
			t.Errorf("got %q, %v after %v", v, err, call.took)
		}
	})
}

// Messages that came while a miss waited for its slot don't keep it from hearing of the load for
// which it waits afterwards.
func TestWakeUpAfterManyChanges(t *testing.T) {
	for _, changes := range []int{1, 8, 9, 12} {
		inBubble(t, fmt.Sprint(changes), func(t *testing.T) {
			store := newTampered()
			c := openOn(t, cacheguard.Store(store),
				cacheguard.Options[string]{MaxLoads: 2, LeaseTTL: 3 * time.Second})
			other := openOn(t, cacheguard.Store(store.Store), cacheguard.Options[string]{})
			o, busy := newScriptedOrigin[string](t), newScriptedOrigin[string](t)
			first := getting(t.Context(), t, other, "k", o.load)
			o.next()
			waiter := getting(t.Context(), t, c, "k", returning("own"))
			waiter.waits()
			var loads []*scriptedLoad[string]
			for i := range 2 {
				getting(t.Context(), t, c, fmt.Sprint("busy", i), busy.load)
				loads = append(loads, busy.next())
			}
			for range changes {
				must(t, other.Invalidate(t.Context(), "k"))
				synctest.Wait()
			}
			second := getting(t.Context(), t, other, "k", o.load)
			load := o.next()
			var once atomic.Bool
			store.past("Lease", func(context.Context) error {
				// The lease is held; its load ends before this answer has arrived.
				if once.CompareAndSwap(false, true) {
					load.gives("theirs")
					time.Sleep(time.Millisecond)
				}
				return nil
			})
			began := time.Now()
			loads[0].gives("x")
			if v, err := waiter.later(); v != "theirs" || err != nil ||
				time.Since(began) > 100*time.Millisecond {
				t.Errorf("after %d changes: %q, %v, %v after the load had ended", changes, v, err,
					time.Since(began))
			}
			loads[1].gives("x")
			first.later()
			second.later()
		})
	}
}
