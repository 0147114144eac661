package memstore

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Get returns the frame of a key, or nil. See [cacheguard.Store].
func (s *Store) Get(
	ctx context.Context, k cacheguard.Key, tags []string,
) (f []byte, of cacheguard.Generations, err error) {
	frame, found := "", false
	err = s.step(ctx, func(t *turn) {
		if v := t.values.get(k, t.now); v != nil {
			frame, found = v.what, true
			if tags != nil {
				of = t.of(k.Cache, tags)
			}
		}
	})
	if found {
		f = []byte(frame) // an empty frame is not nil
	}
	return f, of, err
}

// Claim removes the value and takes over the lease. See [cacheguard.Store].
func (s *Store) Claim(
	ctx context.Context, k cacheguard.Key, token cacheguard.ID, ttl time.Duration,
) (g cacheguard.Grant, err error) {
	err = s.step(ctx, func(t *turn) {
		slot := t.slot(k)
		was := slot
		number, _ := slot.Claim(t.now, protocol.ID(token), t.nextStamp(t.now), ttl)
		t.keep(k, &was, &slot)
		g = t.granted(token, number)
		g.Left, g.Claimed = slot.Frame, true
		t.dropOthers(k)
		t.changed(k, token)
	})
	return g, err
}

// Invalidate removes the values, leases and records of the keys. See [cacheguard.Store].
func (s *Store) Invalidate(ctx context.Context, keys []cacheguard.Key) error {
	return s.each(ctx, keys, func(t *turn, k cacheguard.Key) {
		t.drop(k)
		t.dropOthers(k)
		t.changed(k, cacheguard.ID{})
	})
}

// drop removes everything stored for a key in its version, and reports whether anything was stored.
func (t *turn) drop(k cacheguard.Key) bool {
	slot := t.slot(k)
	was := slot
	slot.Invalidate()
	t.keep(k, &was, &slot)
	return slot != was
}

// dropOthers is drop for the other versions of a key.
func (t *turn) dropOthers(k cacheguard.Key) (some bool) {
	own := k.Version
	for k.Version = range uint8(cacheguard.Versions) {
		some = k.Version != own && t.drop(k) || some
	}
	return some
}

// changed queues the message that a key has changed. If a claim has changed the key, the message
// has the claim's token.
func (t *turn) changed(k cacheguard.Key, claim cacheguard.ID) {
	t.tell(k, cacheguard.Message{Kind: cacheguard.MessageChanged, Load: claim})
}
