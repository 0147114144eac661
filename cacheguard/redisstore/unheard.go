package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/redislink"
)

// unheard returns the generation up to which invalidations may have been missed while messages
// didn't arrive. said is the time of the server's clock, read after messages had begun to arrive.
//
// In a cluster another node has the generations, and its clock may be ahead by doubt. On a single
// server the generations are ahead of the clock for a while if the clock was set back, so unheard
// reads the last ones. It doesn't simply add doubt, because until the clock has passed the returned
// time every value that comes by a message costs a trip more.
func (s *Store) unheard(ctx context.Context, said time.Time, err error) int64 {
	if err != nil {
		return s.latest()
	}
	last := said.Add(doubt).UnixMicro()
	if s.cluster == nil {
		if read, err := s.lastGeneration(ctx); err == nil {
			last = read
		}
	}
	// later.lua doesn't trust a generation that is more than a day ahead.
	return min(max(last, said.UnixMicro()), said.Add(24*time.Hour).UnixMicro())
}

// lastGeneration returns the last generation or grant of the caches that are open. It is 0 if they
// have none.
func (s *Store) lastGeneration(ctx context.Context) (last int64, err error) {
	s.mu.Lock()
	caches := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	return look(ctx, s, s.names.clock(), func(
		ctx context.Context, rdb redis.UniversalClient,
	) (last int64, err error) {
		pipe := rdb.Pipeline()
		tops, wholes := make([]*redis.ZSliceCmd, len(caches)), make([]*redis.StringCmd, len(caches))
		for i, cache := range caches {
			tops[i] = pipe.ZRangeWithScores(ctx, s.names.generations(cache), -1, -1)
			wholes[i] = pipe.Get(ctx, s.names.whole(cache))
		}
		_, _ = redislink.Exec(ctx, pipe) // each command has its own error
		for i, top := range tops {
			for _, err := range []error{top.Err(), wholes[i].Err()} {
				if err != nil && !errors.Is(err, redis.Nil) && !isWrongType(err) {
					return 0, err
				}
			}
			for _, z := range top.Val() {
				last = max(last, generationsOf([]float64{z.Score})[0])
			}
			last = max(last, wholeOf(wholes[i].Val()))
		}
		return last, nil
	})
}
