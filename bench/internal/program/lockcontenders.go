package program

import (
	"context"
	"errors"
	"strings"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/lockstore"
)

// lockPrefix begins the names of contenders that have a locker's locks under the loader.
const lockPrefix = "lock-"

// lockContenders are the loader with each locker under it. What keeps the locks is started for the
// run.
func lockContenders() []contender.Contender {
	var all []contender.Contender
	for _, name := range lockSystemNames {
		all = append(all, contender.Contender{
			OwnClient: name == "redislock" || name == "redlock",
			Name:      lockPrefix + name, What: "cacheguard with the locks of " + name,
			Note: "What it asks of other servers than the one Redis is not counted.",
			Open: func(ctx context.Context, r contender.Rig) (contender.Protection, error) {
				return openUnderLocks(ctx, name, r)
			},
		})
	}
	return all
}

// underLocks closes what is under the loader after it.
type underLocks struct {
	contender.Protection
	wrapped *lockstore.Store
	stop    func()
}

func openUnderLocks(ctx context.Context, name string, r contender.Rig) (contender.Protection, error) {
	locker, stop, err := openLocks(ctx, name, r.Locks, r.LockTTL)
	if err != nil {
		return nil, err
	}
	u := &underLocks{stop: stop}
	u.Protection, err = contender.OpenGuarded(ctx, r, nil, func(s cacheguard.Store) cacheguard.Store {
		u.wrapped = lockstore.Wrap(s, locker)
		return u.wrapped
	})
	if err != nil {
		stop()
		return nil, err
	}
	return u, nil
}

func (u *underLocks) Close() error {
	err := errors.Join(u.Protection.Close(), u.wrapped.Close())
	u.stop()
	return err
}

// startLocksOf starts what a contender's locks are in, if it has some.
func startLocksOf(c contender.Contender, redis string) (where string, stop func(), err error) {
	return startLocks(strings.TrimPrefix(c.Name, lockPrefix), redis)
}
