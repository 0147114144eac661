package coretest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// exiting ends its goroutine a given number of times, like a test that fails in a callback.
type exiting struct{ decodes int }

func (e *exiting) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

func (e *exiting) Decode(src []byte) (string, error) {
	if e.decodes > 0 {
		e.decodes--
		runtime.Goexit()
	}
	return string(src), nil
}

// TestGoexitOutsideOfLoads: a Goexit outside of loads ends only its own goroutine, and the key can
// still be loaded.
func TestGoexitOutsideOfLoads(t *testing.T) {
	inBubble(t, "Decode in the look-up", func(t *testing.T) {
		store, codec := newTampered(), &exiting{decodes: 1}
		c := openOn(t, store, cacheguard.Options[string]{Codec: codec})
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		looking := make(chan struct{})
		store.onto("Get", func(context.Context) error { <-looking; return nil })
		leader := getting(t.Context(), t, c, "k", returning("w"))
		leader.waits()
		joiner := getting(t.Context(), t, c, "k", returning("w"))
		joiner.waits()
		store.onto("Get", nil)
		close(looking)
		if !leader.returned() || !leader.died {
			t.Errorf("the leader lives on, with %q, %v", leader.value, leader.err)
		}
		if !joiner.returned() {
			t.Error("the one who joined hangs")
		}
		next := getting(t.Context(), t, c, "k", returning("w"))
		if !next.returned() {
			t.Error("the key is dead")
		}
	})
	inBubble(t, "Decode behind the callers", func(t *testing.T) {
		store, codec := newTampered(), &exiting{}
		here := openOn(t, store, cacheguard.Options[string]{Codec: codec})
		there := openOn(t, store, cacheguard.Options[string]{Codec: codec})
		o := newScriptedOrigin[string](t)
		leader := getting(t.Context(), t, here, "k", o.load)
		load := o.next()
		waiter := getting(t.Context(), t, there, "k", o.load)
		waiter.waits()
		codec.decodes = 1
		load.gives("v")
		leader.gives("v", nil)
		if !waiter.returned() || waiter.err == nil {
			t.Errorf("the waiter hangs, or got %q without an error", waiter.value)
		}
		getting(t.Context(), t, there, "k", o.load).gives("v", nil)
	})
	inBubble(t, "ErrorText", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store,
			cacheguard.Options[string]{ErrorTTL: -1, ErrorText: func(error) string {
				runtime.Goexit()
				return ""
			}})
		failed := getting(t.Context(), t, c, "k", failingWith[string](errOrigin))
		if !failed.returned() || failed.err == nil {
			t.Fatalf("the caller hangs, or got %q without an error", failed.value)
		}
		if !leaseFree(t, store, "k") {
			t.Error("the lease is held")
		}
		getting(t.Context(), t, c, "k", returning("v")).gives("v", nil)
	})
	inBubble(t, "Decode of one key of a batch", func(t *testing.T) {
		store, codec := newTampered(), &exiting{}
		c := openOn(t, store, cacheguard.Options[string]{Codec: codec})
		other := openOn(t, store, cacheguard.Options[string]{Codec: &exiting{}})
		asks := make(chan struct{})
		store.onto("LeaseMany", func(context.Context) error { <-asks; return nil })
		o := newBulk(t)
		many := getMany(t.Context(), t, c, o, "1", "2", "3")
		many.waits()
		// The answer to the request for its lease is now the value.
		if err := other.Set(t.Context(), "2", "v"); err != nil {
			t.Fatal(err)
		}
		codec.decodes = 1
		close(asks)
		if !many.returned() {
			t.Fatal("the batch hangs")
		}
		for _, key := range []string{"1", "3"} {
			if !leaseFree(t, store, key) {
				t.Errorf("the lease of %s is held", key)
			}
		}
	})
}

// TestGoexitInLocal, in Clone or Weigh, doesn't leave the key dead.
func TestGoexitInLocal(t *testing.T) {
	for name, l := range map[string]cacheguard.Local[int]{
		"clone": {Entries: 10, Clone: func(int) int { runtime.Goexit(); return 0 }},
		"weigh": {Entries: 10, Weigh: func(string, int) uint32 { runtime.Goexit(); return 0 }},
	} {
		bubble(t, name, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			plain := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
			if err := plain.Set(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			c := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{Local: l})
			go func() { _, _ = c.Get(t.Context(), "k", returning(2)) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			go func() {
				_, err := c.Get(ctx, "k", returning(2))
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the key is dead: %v after %v", err, time.Since(began))
				}
			}()
			time.Sleep(2 * time.Hour)
		})
	}
}

// exitingObserver ends the goroutine on which it is told of this kind of event.
type exitingObserver struct{ on cacheguard.EventKind }

func (o exitingObserver) Observe(_ context.Context, e cacheguard.Event) {
	if e.Kind == o.on {
		runtime.Goexit()
	}
}

// TestGoexitInObservers takes along the goroutine it happens on: nobody waits for ever, and no slot
// is lost.
func TestGoexitInObservers(t *testing.T) {
	inBubble(t, "of waits", func(t *testing.T) {
		store := newTampered()
		a := openOn(t, store, cacheguard.Options[string]{})
		b := openOn(t, store, cacheguard.Options[string]{
			MaxLoads: 1, Observer: exitingObserver{cacheguard.EventWaited},
		})
		o := newBulk(t)
		getMany(t.Context(), t, a, o, "1", "2", "3")
		load := o.next("1", "2", "3")
		many := getMany(t.Context(), t, b, o, "1", "2", "3")
		many.waits()
		load.gives("v")
		synctest.Wait()
		if !many.returned() {
			t.Error("the batch hangs")
		}
		getting(t.Context(), t, b, "other", returning("v")).gives("v", nil)
	})
	inBubble(t, "of Update", func(t *testing.T) {
		store := newTampered()
		c := openOn(t, store,
			cacheguard.Options[string]{Observer: exitingObserver{cacheguard.EventStoreError}})
		store.onto("Claim", fails(1))
		call := beginCall(t, func() (string, error) {
			return c.Update(t.Context(), "k", returning("v"))
		})
		if !call.returned() || !call.died {
			t.Error("the caller lives on")
		}
		if closed := beginCall(t, func() (int, error) { return 0, c.Close() }); !closed.returned() {
			t.Error("Close hangs")
		}
	})
}
