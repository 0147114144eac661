package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

// unheard returns, for each of these caches, the generation up to which invalidations may have been
// missed while messages didn't arrive. said is the time that the clock of the server showed after
// messages had begun to arrive.
//
// If the clock was set back, the generations are ahead of it for a while. So unheard reads the last
// ones. It doesn't simply add doubt, unless they can't be read: until the clock has passed the
// returned time, every value that comes by a message costs a trip more. err says why they can't be
// read.
func (s *Store) unheard(
	ctx context.Context, said time.Time, caches []string,
) (since map[string]int64, err error) {
	most := said.Add(24 * time.Hour).UnixMicro() // later.lua trusts no generation that is later
	last, err := s.lastGenerations(ctx, caches)
	if err != nil {
		said = said.Add(doubt)
	}
	since = make(map[string]int64, len(caches))
	for _, cache := range caches {
		since[cache] = min(max(last[cache], said.UnixMicro()), most)
	}
	return since, err
}

// lastGenerations returns the last generation or grant of each of these caches that has one. The
// breaker has no say in it: it may still be open when messages begin to arrive.
func (s *Store) lastGenerations(ctx context.Context, caches []string) (map[string]int64, error) {
	if len(caches) == 0 {
		return nil, nil
	}
	return twice(ctx, s, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (map[string]int64, error) {
		pipe := rdb.Pipeline()
		tops, wholes := make([]*redis.ZSliceCmd, len(caches)), make([]*redis.StringCmd, len(caches))
		for i, cache := range caches {
			tops[i] = pipe.ZRangeWithScores(ctx, s.names.generations(cache), -1, -1)
			wholes[i] = pipe.Get(ctx, s.names.whole(cache))
		}
		_, _ = redislink.Exec(ctx, pipe) // each command has its own error
		all := make(map[string]int64, len(caches))
		for i, cache := range caches {
			for _, err := range []error{tops[i].Err(), wholes[i].Err()} {
				if err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) {
					return nil, err
				}
			}
			all[cache] = wholeOf(wholes[i].Val())
			for _, z := range tops[i].Val() {
				all[cache] = max(all[cache], generationsOf([]float64{z.Score})[0])
			}
		}
		return all, nil
	})
}
