package stage

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
)

// votePrefix is the prefix of the keys on the masters.
const votePrefix = "stage"

// A master may take the lock's time divided by timeoutShare to answer. This is the longest time
// that package redlock allows. It is so long because in this example all replicas and all masters
// share one machine.
const timeoutShare = 10

// openRedlock opens a stage with this module's Redlock, without a delay after the restart of a
// server.
func openRedlock(r *Replica) (Protection, error) {
	masters := make([]redis.UniversalClient, len(r.Masters))
	for i, m := range r.Masters {
		masters[i] = m
	}
	locker, err := redlock.New(masters, redlock.Options{
		Prefix: votePrefix, Lease: r.LockTTL, NodeTimeout: r.LockTTL / timeoutShare, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	lock := func(r *Replica, name string) mutex {
		return &ofLocker{Replica: r, name: name, locker: locker}
	}
	return &withLocker{locked{drops{r}, lock}, locker}, nil
}

// withLocker is a protection that also closes its locker.
type withLocker struct {
	locked
	locker *redlock.Locker
}

func (w *withLocker) Close() error { return w.locker.Close() }

// ofLocker is the lock of a library. Its use in this file has no flaw, but the scheme of Redlock
// has one: a node that was restarted without data has lost its vote, so another request can have a
// majority, too.
type ofLocker struct {
	*Replica
	name   string
	locker lock.Locker
	held   lock.Lock

	// The time since which no majority has answered in time; zero: a majority has answered.
	trouble time.Time
}

// try asks for the lock. If no majority answers, it tries again after a pause, as the description
// of Redlock says, but not for ever.
func (l *ofLocker) try(ctx context.Context) (bool, error) {
	held, err := l.locker.TryLock(ctx, l.name)
	switch {
	case err == nil:
		l.held = held
		return true, nil
	case errors.Is(err, lock.ErrHeld):
		l.trouble = time.Time{}
		return false, nil
	case l.trouble.IsZero():
		l.trouble = time.Now()
	}
	if ctx.Err() != nil || errors.Is(err, lock.ErrClosed) || time.Since(l.trouble) > l.LockTTL {
		return false, err
	}
	return false, nil
}

func (l *ofLocker) unlock(ctx context.Context) error {
	err := l.held.Unlock(ctx)
	if errors.Is(err, lock.ErrLost) {
		return l.At(ctx, NotMine)
	}
	if err != nil {
		return err
	}
	return l.At(ctx, Unlocked)
}
