package cacheguard_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// The error of a load may be from before a change whose message was lost, so it isn't told again
// during a break of messages and after it.
func TestErrorFromBeforeABreakOfMessages(t *testing.T) {
	for name, over := range map[string]bool{"during the break": false, "after the break": true} {
		inBubble(t, name, func(t *testing.T) {
			shared := memstore.New(memstore.Options{})
			store := &listenStore{Store: shared}
			c, other := openOn(t, cacheguard.Store(store), cacheguard.Options[int]{}),
				openOn(t, cacheguard.Store(shared), cacheguard.Options[int]{})
			time.Sleep(time.Millisecond)
			if _, err := c.Get(t.Context(), "k", failingWith[int](errOrigin)); !errors.Is(err,
				errOrigin) {
				t.Fatal(err)
			}
			store.lose()
			must(t, other.Invalidate(t.Context(), "k"))
			time.Sleep(500 * time.Millisecond)
			if over {
				store.restore()
			}
			// ErrorTTL is over, and the grace of the back-off isn't.
			time.Sleep(550 * time.Millisecond)
			if v, err := c.Get(t.Context(), "k", returning(2)); v != 2 || err != nil {
				t.Errorf("%v, %v", v, err)
			}
		})
	}
}

// A token from the future demands nothing, so the load sees the previous value.
func TestPreviousValueWithATokenFromTheFuture(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		c := openOn(t, cacheguard.Store(memstore.New(memstore.Options{})),
			cacheguard.Options[string]{TTL: time.Second, StaleIfError: time.Hour})
		gets(t, c, "k", tagged("old"), "old", cacheguard.StatusLoaded)
		time.Sleep(2 * time.Second)
		ctx := cacheguard.NotOlderThan(t.Context(),
			cacheguard.TokenAt(time.Now().Add(365*24*time.Hour)))
		_, err := c.GetEntry(ctx, "k", func(
			_ context.Context, previous cacheguard.Result[string],
		) (entry, error) {
			if previous.Value != "old" {
				t.Errorf("the load saw %+v", previous)
			}
			return entry{Value: "new"}, nil
		})
		must(t, err)
	})
}

// gatedReads is a store whose GetMany can be held.
type gatedReads struct {
	*listenStore
	gate atomic.Pointer[chan struct{}]
}

func (s *gatedReads) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	return s.listenStore.GetMany(ctx, keys, tags)
}

// A failover has lost an invalidation of this process. When messages arrive again, a read gets the
// old value before the invalidation is repeated. The local tier doesn't keep it.
func TestReadBetweenAFailoverAndTheRepeatedChange(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		store := &gatedReads{listenStore: &listenStore{Store: shared}}
		c := lookingFirst(openOn(t, cacheguard.Store(store), cacheguard.Options[string]{
			TTL: time.Hour, Local: cacheguard.Local[string]{Entries: 10, TTL: time.Hour},
		}))
		other := openOn(t, cacheguard.Store(shared), cacheguard.Options[string]{TTL: time.Hour})
		time.Sleep(time.Millisecond)
		gets(t, other, "k", tagged("old"), "old", cacheguard.StatusLoaded)
		k := cacheguard.Key{Cache: "behave", Key: "k"}
		old, _, err := shared.Get(t.Context(), k, nil)
		must(t, err)
		time.Sleep(time.Second)
		must(t, c.Invalidate(t.Context(), "k"))
		// The failover: the new master has the old value.
		store.lose()
		g, err := shared.Lease(t.Context(), k,
			cacheguard.LeaseAsk{Token: cacheguard.ID{1}, TTL: time.Second})
		must(t, err)
		_, err = shared.Fill(t.Context(), k, g.Grant, old, time.Hour)
		must(t, err)
		time.Sleep(time.Second)
		stop := c.WhenTold("other", func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.GetMany(t.Context(), []string{"k"}, func(
					context.Context, []string,
				) (map[string]string, error) {
					return map[string]string{"k": "loaded"}, nil
				})
			}()
			// A hit returns at once; a miss waits until this message has been handled.
			for range 100_000 {
				select {
				case <-done:
				default:
					runtime.Gosched()
				}
			}
			gate := make(chan struct{})
			store.gate.Store(&gate)
		})
		// Another process refreshes the key a moment later, before the change is repeated.
		store.restore()
		stop()
		if v, err := other.Refresh(t.Context(), "k", returning("new")); v == "old" || err != nil {
			t.Fatal(v, err)
		}
		close(*store.gate.Load())
		must(t, c.Flush(t.Context()))
		time.Sleep(time.Minute)
		r, err := c.GetResult(t.Context(), "k", returning("new"))
		if r.Value == "old" {
			t.Errorf("a minute after the failover: %q, local %v, %v", r.Value, r.Local, err)
		}
	})
}
