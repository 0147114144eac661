package coretest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// nowStore is a store that does something when it is asked for its time.
type nowStore struct {
	*tampered
	then atomic.Pointer[func()]
}

func (s *nowStore) Now() time.Time {
	if f := s.then.Swap(nil); f != nil {
		(*f)()
	}
	return s.tampered.Now()
}

// While a change can't reach the store, no read brings the old value back into the local tier, at
// whatever moment the read comes.
func TestPendingChangeAndTheLocalTier(t *testing.T) {
	for how, change := range map[string]func(ctx context.Context,
		c *cacheguard.Cache[string]) error{
		"Invalidate": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Invalidate(ctx, "k")
		},
		"MarkStale": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.MarkStale(ctx, "k")
		},
		"Set": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.Set(ctx, "k", "set")
		},
		"tag": func(ctx context.Context, c *cacheguard.Cache[string]) error {
			return c.InvalidateTags(ctx, "tag")
		},
	} {
		inBubble(t, how, func(t *testing.T) {
			store := &nowStore{tampered: newTampered()}
			c := openOn(t, cacheguard.Store(store),
				cacheguard.Options[string]{Local: cacheguard.Local[string]{Entries: 10}})
			other := openOn(t, cacheguard.Store(store.Store), cacheguard.Options[string]{})
			gets(t, other, "k", tagged("old", "tag"), "old", cacheguard.StatusLoaded)
			for _, step := range []string{"Invalidate", "MarkStale", "Claim", "InvalidateTags"} {
				store.onto(step, func(context.Context) error {
					then := func() {
						done := make(chan struct{})
						go func() {
							defer close(done)
							_, _ = c.Get(t.Context(), "k", returning("loaded"))
						}()
						<-done
					}
					store.then.Store(&then)
					return errTampered
				})
			}
			if err := change(t.Context(), c); !errors.Is(err, cacheguard.ErrPending) {
				t.Fatal(err)
			}
			for range 3 {
				if v, err := c.Get(t.Context(), "k", returning("new")); v != "new" || err != nil {
					t.Errorf("after %s, which is pending: %q, %v", how, v, err)
				}
			}
		})
	}
}

// If a load fails after its key was invalidated, later calls don't get its error.
func TestErrorFromBeforeAnInvalidation(t *testing.T) {
	for _, here := range []bool{true, false} {
		for way, get := range nestedWays {
			inBubble(t, way, func(t *testing.T) {
				store := memstore.New(memstore.Options{})
				c, other := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{}),
					openOn(t, cacheguard.Store(store), cacheguard.Options[int]{})
				o := newScriptedOrigin[int](t)
				early := beginCall(t, func() (int, error) { return get(t.Context(), c, o.load) })
				load := o.next()
				by := c
				if !here {
					by = other
				}
				must(t, by.Invalidate(t.Context(), "part"))
				load.fails(errOrigin)
				early.gives(0, errOrigin)
				time.Sleep(time.Second + 50*time.Millisecond)
				beginCall(t, func() (int, error) {
					return get(t.Context(), c, returning(2))
				}).gives(2, nil)
			})
		}
	}
}

// The TTL of an Entry replaces NegativeTTL, even if NegativeTTL is negative.
func TestEntryTTLReplacesNegativeTTL(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{NegativeTTL: -1})
		_, err := c.GetEntry(t.Context(), "k", func(
			context.Context, cacheguard.Result[string],
		) (cacheguard.Entry[string], error) {
			return cacheguard.Entry[string]{TTL: time.Minute}, cacheguard.ErrNotFound
		})
		if !errors.Is(err, cacheguard.ErrNotFound) {
			t.Error(err)
		}
		if r, err := c.Peek(t.Context(), "k"); !r.NotFound || err != nil {
			t.Errorf("Peek: %+v, %v", r, err)
		}
	})
}
