package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// Redis is stopped, and a call is given up. Then Redis goes on and carries out the call's request.
// No call has this lock, and it doesn't block other calls until its lease is over.
func TestGivenUpWhileRedisStandsStill(t *testing.T) {
	const prefix, name = "debts", "n"
	l, proxy, rdb := indebted(t, prefix)
	isAcquire := redistest.IsEval(redislock.AcquireScript)
	question, again := proxy.HoldBack(isAcquire, redistest.Hangup),
		proxy.HoldBack(isAcquire, redistest.Hangup)
	heal := loseReleases(proxy)
	if _, err := l.Lock(t.Context(), name); err == nil {
		t.Fatal("Lock returned no error")
	}
	<-again.Struck()
	waittest.Until(t, "the release gets no answer", func() bool { return l.Debts() == 1 })
	_, err := question.Release(t.Context())
	must(t, err)
	if !has(t, rdb, prefix, name) {
		t.Fatal("the late question didn't get the lock")
	}
	heal()
	waittest.Until(t, "the lock is given back", func() bool { return !has(t, rdb, prefix, name) })
	waittest.Until(t, "nothing is owed", func() bool { return l.Debts() == 0 })
}

// An Unlock that got no reply is carried out when Redis replies again.
func TestUnlockReachesRedisThatComesBack(t *testing.T) {
	const prefix, name = "unlocks", "n"
	l, proxy, rdb := indebted(t, prefix)
	held := locked(t, l, name)
	heal := loseReleases(proxy)
	if err := held.Unlock(t.Context()); err == nil {
		t.Error("Unlock returned no error")
	}
	heal()
	waittest.Until(t, "the lock is given back", func() bool { return !has(t, rdb, prefix, name) })
}

// indebted returns a locker behind a proxy. Its locks don't expire within the time of a test.
func indebted(t *testing.T, prefix string) (*redislock.Locker, *redistest.Proxy, *redis.Client) {
	t.Helper()
	addr := redistest.Shared(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	rdb := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	l := open(t, rdb, redislock.Options{Prefix: prefix, Lease: time.Hour, OpTimeout: patience})
	must(t, l.Warm(t.Context()))
	return l, proxy, client(t, addr)
}

// loseReleases makes the proxy lose all releases, until heal is called.
func loseReleases(proxy *redistest.Proxy) (heal func()) {
	var faults []*redistest.Fault
	for range 1000 {
		faults = append(faults,
			proxy.DropCommand(redistest.IsEval(redislock.ReleaseScript), redistest.Hangup))
	}
	return func() {
		for _, f := range faults {
			f.Disarm()
		}
	}
}

func has(t *testing.T, rdb *redis.Client, prefix, name string) bool {
	t.Helper()
	n, err := rdb.Exists(t.Context(), redislock.LockName(prefix, name)).Result()
	must(t, err)
	return n == 1
}
