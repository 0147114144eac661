package memstore

import (
	"bytes"
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// Get returns the frame of a key, or nil. See cacheguard.Store.
func (s *Store) Get(ctx context.Context, k cacheguard.Key, tags []string) (f []byte, of cacheguard.Generations, err error) {
	err = s.step(ctx, func(t *turn) {
		if v := t.values.get(k, t.now); v != nil {
			f = v.what
			if tags != nil {
				of = t.of(k.Cache, tags)
			}
		}
	})
	return bytes.Clone(f), of, err
}

// Claim removes the value and takes the lease over. See cacheguard.Store.
func (s *Store) Claim(ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration) (cacheguard.Grant, error) {
	var g cacheguard.Grant
	err := s.step(ctx, func(t *turn) {
		t.values.remove(k)
		if held := t.leases.get(k, t.now); held != nil && held.what.grant.Token == token {
			// A copy of the claim: a new number would have the first one's fill refused.
			t.leases.extend(held, t.after(ttl))
			g = held.what.grant
		} else {
			g = t.grant(k, token, ttl)
		}
		t.changed(k)
	})
	return g, err
}

// Invalidate removes all that is known about the keys. See cacheguard.Store.
func (s *Store) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.each(ctx, keys, func(t *turn, k cacheguard.Key) {
		t.values.remove(k)
		t.leases.remove(k)
		t.records.remove(k)
		t.changed(k)
	})
}

// clone copies a frame, before the mutex is taken, so that large ones hold nobody up. An empty frame stays one, which
// is not the same as none.
func clone(f []byte) []byte { return append(make([]byte, 0, len(f)), f...) }

func (t *turn) changed(k cacheguard.Key) {
	t.tell(k, cacheguard.Message{Kind: cacheguard.MessageChanged})
}
