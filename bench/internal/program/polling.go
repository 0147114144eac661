package program

import (
	"context"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

// pollLeast and pollMost are how long a process of polling waits, at random, before it looks again.
const (
	pollMost  = 100 * time.Millisecond
	pollLeast = pollMost / 2
)

// polling is the scenarios' contender of a flight with a lock under it.
func polling(ctx context.Context, r *rig) (getter, func(), error) {
	chosen, err := contender.Named(contender.All(), contender.FlightLock)
	if err != nil {
		return nil, nil, err
	}
	p, err := chosen[0].Open(ctx, contender.Rig{Redis: r.rdb, TTL: valueTTL, LockTTL: lockTTL, PollTime: pollMost,
		Load: func(ctx context.Context, _ string) (string, bool, error) {
			v, err := r.origin(ctx)
			return v, true, err
		}})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) error {
		v, _, err := p.Get(ctx, key)
		return r.check(v, err)
	}, func() { _ = p.Close() }, nil
}
