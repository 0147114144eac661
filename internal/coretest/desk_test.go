package coretest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/desk"
)

// TestDesk runs the job of a load on the goroutine of the load's caller. The job may panic, and the
// caller's client may leave.
func TestDesk(t *testing.T) {
	type call struct {
		r       cacheguard.Result[string]
		err     error
		paniced any
	}
	get := func(
		t *testing.T, c *cacheguard.Cache[string], client context.Context, job func(),
	) <-chan call {
		ended := make(chan call, 1)
		go func() {
			var got call
			defer func() { ended <- got }()
			defer func() { got.paniced = recover() }()
			d := desk.Open(client)
			defer d.Close()
			ctx, cancel := context.WithTimeout(desk.With(client, d), time.Second)
			defer cancel()
			got.r, got.err = c.GetEntry(ctx, "k", func(
				ctx context.Context, _ cacheguard.Result[string],
			) (cacheguard.Entry[string], error) {
				if desk.From(ctx) != nil {
					t.Error("the load's context has the desk of its caller")
				}
				whole, over := false, make(chan struct{})
				if !d.Do(func() {
					defer close(over)
					job()
					whole = true
				}) {
					t.Error("the caller has left")
				}
				select {
				case <-over:
				case <-ctx.Done():
					return cacheguard.Entry[string]{}, ctx.Err()
				}
				if !whole {
					return cacheguard.Entry[string]{}, errOrigin
				}
				return cacheguard.Entry[string]{Value: "v"}, nil
			})
		}()
		return ended
	}
	waiter := func(t *testing.T, c *cacheguard.Cache[string]) *begun[cacheguard.Result[string]] {
		w := gettingEntry(t.Context(), t, c, "k",
			failingWith[entry](errors.New("a waiter's load ran")))
		w.waits()
		return w
	}
	for _, where := range []string{"here", "there"} {
		other := func(
			t *testing.T, store *memstore.Store, c *cacheguard.Cache[string],
		) *cacheguard.Cache[string] {
			if where == "here" {
				return c
			}
			return openOn(t, store, cacheguard.Options[string]{})
		}
		inBubble(t, "returns "+where, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{})
			// Longer than its patience with others.
			ended := get(t, c, t.Context(), func() { <-time.After(5 * time.Second) })
			synctest.Wait()
			w := waiter(t, other(t, store, c))
			if got := <-ended; got.r.Value != "v" || got.r.Status != cacheguard.StatusLoaded ||
				got.err != nil {
				t.Errorf("got %+v", got)
			}
			if r, err := w.later(); r.Value != "v" || err != nil {
				t.Errorf("the waiter got %+v, %v", r, err)
			}
		})
		inBubble(t, "panics "+where, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{ErrorTTL: -1})
			ended := get(t, c, t.Context(), func() { <-time.After(time.Second / 2); panic("mine") })
			synctest.Wait()
			w := waiter(t, other(t, store, c))
			if got := <-ended; got.paniced != "mine" {
				t.Errorf("got %+v", got)
			}
			if _, err := w.later(); err == nil ||
				!strings.Contains(err.Error(), errOrigin.Error()) {
				t.Errorf("the waiter got %v", err)
			}
			if got := <-get(t, c, t.Context(), func() {}); got.r.Value != "v" {
				t.Errorf("the next call got %+v", got)
			}
		})
		inBubble(t, "leaves "+where, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			c := openOn(t, store, cacheguard.Options[string]{})
			client, leave := context.WithCancel(t.Context())
			ended := get(t, c, client, func() { <-time.After(time.Second / 2) })
			synctest.Wait()
			w := waiter(t, other(t, store, c))
			leave()
			if where == "here" {
				if got := <-ended; got.err != context.Canceled {
					t.Errorf("got %+v", got)
				}
				if r, err := w.later(); r.Value != "v" || err != nil {
					t.Errorf("the waiter got %+v, %v", r, err)
				}
				return
			}
			<-ended // the last one in its process: its load is given up, and the next process loads
			if _, err := w.later(); err == nil ||
				!strings.Contains(err.Error(), "a waiter's load ran") {
				t.Errorf("the waiter got %v", err)
			}
		})
	}
}
