package memstore

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// GetMany is Get for many keys of one cache. See [cacheguard.Store].
func (s *Store) GetMany(
	ctx context.Context, keys []cacheguard.Key, tags []string,
) ([]cacheguard.Reply[[]byte], cacheguard.Generations) {
	replies := make([]cacheguard.Reply[[]byte], len(keys))
	for i, k := range keys {
		replies[i].Answer, _, replies[i].Err = s.Get(ctx, k, nil)
	}
	if tags == nil || len(keys) == 0 {
		return replies, nil
	}
	of, _ := s.Generations(ctx, keys[0].Cache, tags)
	return replies, of
}

// LeaseMany is Lease for many keys. See [cacheguard.Store].
func (s *Store) LeaseMany(
	ctx context.Context, keys []cacheguard.Key, asks []cacheguard.LeaseAsk,
) []cacheguard.Reply[cacheguard.LeaseAnswer] {
	replies := make([]cacheguard.Reply[cacheguard.LeaseAnswer], len(keys))
	for i, k := range keys {
		replies[i].Answer, replies[i].Err = s.Lease(ctx, k, asks[i])
	}
	return replies
}

// FillMany is Fill for many keys. See [cacheguard.Store].
func (s *Store) FillMany(
	ctx context.Context, fills []cacheguard.FillAsk,
) []cacheguard.Reply[cacheguard.FillAnswer] {
	replies := make([]cacheguard.Reply[cacheguard.FillAnswer], len(fills))
	for i, f := range fills {
		replies[i].Answer, replies[i].Err = s.Fill(ctx, f.Key, f.Grant, f.Frame, f.TTL)
	}
	return replies
}

// RenewMany is Renew for many keys. See [cacheguard.Store].
func (s *Store) RenewMany(
	ctx context.Context, keys []cacheguard.Key, grants []cacheguard.Grant, ttl time.Duration,
) []cacheguard.Reply[cacheguard.Holding] {
	replies := make([]cacheguard.Reply[cacheguard.Holding], len(keys))
	for i, k := range keys {
		replies[i].Answer, replies[i].Err = s.Renew(ctx, k, grants[i], ttl)
	}
	return replies
}
