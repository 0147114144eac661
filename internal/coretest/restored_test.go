package coretest_test

import (
	"context"
	"errors"
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
			tokenAt(t, time.Now().Add(365*24*time.Hour)))
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
