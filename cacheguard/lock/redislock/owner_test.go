package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Owners are numbered, so the name of one owner may begin with the name of another. Each script
// compares the whole name to find out whose lock it is.
func TestOwnerWhoseNameBeginsWithAnothers(t *testing.T) {
	const prefix, name, lease = "whose", "n", 3 * time.Second
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	lockName := redislock.LockName(prefix, name)
	// takes gives the lock to an owner whose name is longer by a digit.
	takes := func(t *testing.T) string {
		t.Helper()
		owner, token, ok := strings.Cut(rdb.Get(t.Context(), lockName).Val(), " ")
		if !ok {
			t.Fatal("the lock isn't held")
		}
		longer := owner + "2 " + token
		must(t, rdb.Set(t.Context(), lockName, longer, time.Hour).Err())
		return longer
	}
	t.Run("renew", func(t *testing.T) {
		l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease})
		held := locked(t, l, name)
		takes(t)
		waittest.Until(t, "it is lost, long before the hour is over", func() bool {
			return held.Err() != nil
		})
		if left := rdb.PTTL(t.Context(), lockName).Val(); left < time.Hour/2 {
			t.Errorf("another's lock was renewed: it has %v left of an hour", left)
		}
		must(t, rdb.Del(t.Context(), lockName).Err())
	})
	t.Run("release", func(t *testing.T) {
		l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: time.Hour})
		held := locked(t, l, name)
		others := takes(t)
		if err := held.Unlock(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock of a lock that is another's: %v; want ErrLost", err)
		}
		if is := rdb.Get(t.Context(), lockName).Val(); is != others {
			t.Errorf("the lock is %q; want another's, %q", is, others)
		}
		must(t, rdb.Del(t.Context(), lockName).Err())
	})
	t.Run("take", func(t *testing.T) {
		l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: time.Hour})
		others := redislock.NextOwner(l) + "2 7"
		must(t, rdb.Set(t.Context(), lockName, others, time.Hour).Err())
		if held, err := l.Continue(t.Context(), name, 99); !errors.Is(err, lock.ErrLost) {
			t.Errorf("another's lock was continued by a wrong token: %v, %v", held, err)
		}
		if is := rdb.Get(t.Context(), lockName).Val(); is != others {
			t.Errorf("the lock is %q; want another's, %q", is, others)
		}
		must(t, rdb.Del(t.Context(), lockName).Err())
	})
	t.Run("acquire", func(t *testing.T) {
		l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: time.Hour})
		owner := redislock.NextOwner(l)
		must(t, rdb.Set(t.Context(), lockName, owner+"2 7", time.Hour).Err())
		if held, err := l.TryLock(t.Context(), name); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("another's lock was had: %v, %v", held, err)
		}
		must(t, rdb.Del(t.Context(), lockName).Err())
	})
}
