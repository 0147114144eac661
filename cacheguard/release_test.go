package cacheguard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/memstore"
)

// tardyStore answers the first question for a lease when that has ended, and loses the answer to
// the first release.
type tardyStore struct {
	cacheguard.Store
	late     time.Duration
	asked    []cacheguard.ID
	released []cacheguard.ID
}

func (s *tardyStore) Lease(ctx context.Context, k cacheguard.Key, ask cacheguard.LeaseAsk) (cacheguard.LeaseAnswer, error) {
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
