package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var rueidislockContender = contender.Contender{
	Name: "rueidislock", OwnClient: true, What: "a lock that is told by client-side caching, " + recipe,
	Note: of("github.com/redis/rueidis") + ", KeyMajority 1, NoLoopTracking, KeyValidity of -lock-ttl, renewed, TryNextAfter by default (20 ms); the load has the lock's context. " +
		"Some callers of a burst get no answer from it; why is not known, and without NoLoopTracking it is the same. " +
		"It needs a redis-server, not an embedded one.",
	Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
		locker, err := openRueidisLocker(r)
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

func rueidisOptions(r contender.Rig) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{r.Redis.Options().Addr}}
}

func openRueidisLocker(r contender.Rig) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidisOptions(r), KeyMajority: 1, KeyValidity: r.LockTTL, NoLoopTracking: true,
	})
}

func rueidisLock(l rueidislock.Locker) lockFunc {
	return func(ctx context.Context, name string) (context.Context, func(), error) {
		return l.WithContext(ctx, name)
	}
}
