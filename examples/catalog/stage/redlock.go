package stage

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redlock"
)

// votePrefix begins what is kept on the masters.
const votePrefix = "stage"

// timeoutShare is how much of the lock's time a master may take to answer: the most there is, for
// here all replicas and all masters share one machine.
const timeoutShare = 10

// openRedlock is a stage with the Redlock of this module, without a delay after the restart of a
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
	lock := func(r *Replica, name string) mutex { return &ofLocker{Replica: r, name: name, locker: locker} }
	return &withLocker{locked{drops{r}, lock}, locker}, nil
}

// withLocker closes its locker.
type withLocker struct {
	locked
	locker *redlock.Locker
}

func (w *withLocker) Close() error { return w.locker.Close() }

// ofLocker is the lock of a library. There is no flaw in how it is used here; with Redlock there is
// one in the scheme: a node that was restarted empty has forgotten whom it had given its vote, and
// another can have a majority, too.
type ofLocker struct {
	*Replica
	name   string
	locker lock.Locker
	held   lock.Lock

	trouble time.Time // since when a majority hasn't answered in time; zero: it has
}

// try tries again, after a pause, when no majority answers, as the description of Redlock has it,
// but not for ever.
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
