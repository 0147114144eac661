package coretest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
	"github.com/cacheguard/cacheguard/internal/desk"
)

// gatedCodec encodes when it may.
type gatedCodec struct{ gate chan struct{} }

func (g gatedCodec) Append(dst []byte, v string) ([]byte, error) {
	<-g.gate
	return append(dst, v...), nil
}

func (g gatedCodec) Decode(src []byte) (string, error) { return string(src), nil }

// TestLoadThatHasReturnedIsStored, also if the last caller leaves before that is done.
func TestLoadThatHasReturnedIsStored(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		codec := gatedCodec{make(chan struct{})}
		c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{Codec: codec})
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := c.Get(ctx, "k", func(context.Context) (string, error) { return "v", nil })
			left <- err
		}()
		synctest.Wait()
		leave()
		if err := <-left; err != context.Canceled {
			t.Errorf("who left got %v", err)
		}
		synctest.Wait()
		close(codec.gate)
		synctest.Wait()
		if r, err := c.Peek(t.Context(), "k"); r.Value != "v" || r.Status != cacheguard.StatusHit ||
			err != nil {
			t.Errorf("found %+v, %v; want what the load returned", r, err)
		}
	})
}

// TestLoadThatHasItsResultIsStored: one that has said so goes on, whoever leaves; one that hasn't
// is cancelled, and what it says later changes nothing.
func TestLoadThatHasItsResultIsStored(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		inBubble(t, map[bool]string{true: "in time", false: "too late"}[keeps], func(t *testing.T) {
			c := openOn(t, memstore.New(memstore.Options{}), cacheguard.Options[string]{})
			ctx, leave := context.WithCancel(t.Context())
			gate, cancelled := make(chan struct{}), false
			go func() {
				d := desk.Open(ctx)
				defer d.Close()
				_, _ = c.Get(desk.With(ctx, d), "k", func(ctx context.Context) (string, error) {
					if keeps {
						desk.LoadOf(ctx).Made()
					}
					<-gate
					cancelled = ctx.Err() != nil
					desk.LoadOf(ctx).Made()
					return "v", nil
				})
			}()
			synctest.Wait()
			leave()
			synctest.Wait()
			close(gate)
			synctest.Wait()
			r, err := c.Peek(t.Context(), "k")
			if stored := r.Status == cacheguard.StatusHit; stored != keeps || cancelled == keeps ||
				err != nil {
				t.Errorf("cancelled %v, found %+v, %v", cancelled, r, err)
			}
			if r, err := c.GetResult(t.Context(), "k", func(context.Context) (string, error) {
				return "new", nil
			}); err != nil || (r.Value == "v") != keeps {
				t.Errorf("then %+v, %v", r, err)
			}
		})
	}
}

// TestLoadThatHasItsResultLosesItsLease: when an invalidation comes between, what the load has is
// not stored, and another load's result is.
func TestLoadThatHasItsResultLosesItsLease(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		c, other := openOn(t, store, cacheguard.Options[string]{}),
			openOn(t, store, cacheguard.Options[string]{})
		ctx, leave := context.WithCancel(t.Context())
		gate := make(chan struct{})
		go func() {
			d := desk.Open(ctx)
			defer d.Close()
			_, _ = c.Get(desk.With(ctx, d), "k", func(ctx context.Context) (string, error) {
				desk.LoadOf(ctx).Made()
				<-gate
				return "old", nil
			})
		}()
		synctest.Wait()
		leave()
		if err := other.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		taken := make(chan struct{})
		go func() {
			_, _ = other.Get(t.Context(), "k", func(ctx context.Context) (string, error) {
				<-taken
				return "new", nil
			})
		}()
		// The renewal finds that another load has the lease. It is the other one's that is stored.
		<-time.After(2 * time.Second)
		close(taken)
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if r, err := c.Peek(t.Context(), "k"); r.Value != "new" || err != nil {
			t.Errorf("found %+v, %v", r, err)
		}
	})
}

// A load that has its result loses its lease to another load, and its callers follow that load.
// When the last of them has left, nobody asks for the lease any more.
func TestLoadThatHasItsResultLosesItsLeaseAndItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New(memstore.Options{})
		defer shared.Close()
		store := &tampered{
			Store: shared, before: make(map[string]hook), after: make(map[string]hook),
			count: make(map[string]int),
		}
		codec := gatedCodec{make(chan struct{})}
		c := openOn(t, store, cacheguard.Options[string]{Codec: codec})
		other := openOn(t, shared, cacheguard.Options[string]{})
		ctx, leave := context.WithCancel(t.Context())
		call := getting(ctx, t, c, "k", returning("old")) // made, and not encoded yet
		call.waits()
		must(t, other.Invalidate(t.Context(), "k"))
		o := newScriptedOrigin[string](t)
		leaving, left := context.WithCancel(t.Context())
		getting(leaving, t, other, "k", o.load)
		o.next()
		<-time.After(2 * time.Second) // the renewal finds that another load has the lease
		leave()
		call.gives("", context.Canceled)
		asked := store.steps("Lease")
		left() // the other load ends, and those who follow it would ask
		<-time.After(time.Minute)
		if n := store.steps("Lease") - asked; n > 0 {
			t.Errorf("the lease was asked for %d times, although nobody wants the value", n)
		}
		close(codec.gate)
	})
}
