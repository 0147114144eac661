package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard"
)

var _ cacheguard.Permits = (*Store)(nil)

// TakePermit gives the token a permit of the budget, if one is free. If the token already has a
// permit, TakePermit renews it. A permit ends after ttl unless it is renewed. If no permit is free,
// the returned duration is at most ttl, even if a permit in Redis lasts longer.
func (s *Store) TakePermit(
	ctx context.Context, budget string, token cacheguard.ID, max int, ttl time.Duration,
) (bool, time.Duration, error) {
	keys := s.permits(budget)
	reply, err := call(ctx, s, keys[0], func(
		ctx context.Context, rdb redis.UniversalClient,
	) ([]int64, error) {
		return permitScript.Run(ctx, rdb, keys, token.String(), max, millis(ttl)).Int64Slice()
	})
	switch {
	case err != nil:
		return false, 0, err
	case len(reply) == 1 && reply[0] == 1:
		return true, 0, nil
	case len(reply) == 2 && reply[0] == 0:
		return false, min(duration(reply[1]), ttl), nil
	}
	return false, 0, fmt.Errorf("redisstore: the permit script answered %d", reply)
}

// ReturnPermit returns a permit.
func (s *Store) ReturnPermit(ctx context.Context, budget string, token cacheguard.ID) error {
	message := encodeMessage(kindReleased,
		cacheguard.Key{Cache: cacheguard.PermitsCache, Key: budget}, token)
	return s.run(ctx, call, unpermitScript, s.permits(budget),
		token.String(), s.channelOf(cacheguard.PermitsCache), s.names.channel(), message)
}

// permits returns all names of a budget, which are in one slot of a cluster.
func (s *Store) permits(budget string) []string {
	name := s.names.permits(budget)
	return []string{name, s.names.wanted(name)}
}
