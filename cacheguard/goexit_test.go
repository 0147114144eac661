package cacheguard_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// exiting ends the goroutine it is called on as often as it is told to, like a test that fails in a
// callback.
type exiting struct{ decodes int }

func (e *exiting) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

func (e *exiting) Decode(src []byte) (string, error) {
	if e.decodes > 0 {
		e.decodes--
		runtime.Goexit()
	}
	return string(src), nil
}

// TestGoexitOutsideOfLoads takes along the goroutine it happens on and nobody else: the key lives
// on.
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
		c := openOn(t, store, cacheguard.Options[string]{ErrorTTL: -1, ErrorText: func(error) string { runtime.Goexit(); return "" }})
		failed := getting(t.Context(), t, c, "k", failingWith[string](errOrigin))
		if !failed.returned() || failed.err == nil {
			t.Fatalf("the caller hangs, or got %q without an error", failed.value)
		}
		next := getting(t.Context(), t, c, "k", returning("v"))
		next.later()
		if next.value != "v" || next.took > 4*time.Second {
			t.Errorf("the next call got %q, %v after %v", next.value, next.err, next.took)
		}
	})
}
