package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/bench/internal/program"
)

var rueidislockContender = contender.Contender{
	Name: "rueidislock", OwnClient: true,
	What: "a lock whose waiting callers are woken by client-side caching, with " + recipe,
	Note: of("github.com/redis/rueidis") +
		", KeyMajority 1, NoLoopTracking, KeyValidity of -lock-ttl, renewed, TryNextAfter by default (20 ms); the load has the lock's context. " +
		"Some callers of a burst get no answer from it, also without NoLoopTracking; a cause may be that a call whose request takes longer than TryNextAfter then waits without a limit. " +
		"It needs a redis-server, not an embedded one.",
	Better: "Its client needs few connections, for it pipelines the commands of all callers by itself.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		locker, err := openRueidisLocker(r.Redis, r.LockTTL)
		if err != nil {
			return nil, err
		}
		if err := r.Redis.Ping(ctx).Err(); err != nil {
			locker.Close()
			return nil, err
		}
		return lockedOn(r, rueidisLock(locker), locker.Close), nil
	},
}

// rueidisPatience is the time after which a waiting call of handover is ended and repeated, because
// some calls are never woken. The contender's note says so.
const rueidisPatience = time.Second

// openRueidislock opens rueidislock for handover. A lock is valid for 10 seconds, as with most of
// the other lockers.
func openRueidislock(ctx context.Context, rdb *redis.Client) (program.LockFunc, func(), error) {
	locker, err := openRueidisLocker(rdb, bsmTTL)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		for {
			// Without a deadline, because the lock would end with it.
			within, cancel := context.WithCancel(ctx)
			patience := time.AfterFunc(rueidisPatience, cancel)
			_, unlock, err := locker.WithContext(within, name)
			switch inTime := patience.Stop(); {
			case err == nil && inTime:
				// It doesn't report whether the release succeeded.
				return func(context.Context) error { unlock(); cancel(); return nil }, nil
			case err == nil:
				unlock()
			case inTime || ctx.Err() != nil:
				cancel()
				return nil, err
			}
		}
	}, locker.Close, rdb.Ping(ctx).Err()
}

func rueidisOptions(rdb *redis.Client) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{rdb.Options().Addr}}
}

func openRueidisLocker(rdb *redis.Client, validity time.Duration) (rueidislock.Locker, error) {
	// After TryNextAfter a call gives up its request, and may then wait for ever. The default is
	// too short for tests on a busy machine.
	tryNextAfter, err := contender.OpTimeout()
	if err != nil {
		return nil, err
	}
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidisOptions(rdb), KeyMajority: 1, KeyValidity: validity,
		NoLoopTracking: true, TryNextAfter: tryNextAfter,
	})
}

func rueidisLock(l rueidislock.Locker) lockFunc {
	return func(ctx context.Context, name string) (context.Context, func(), error) {
		return l.WithContext(ctx, name)
	}
}
