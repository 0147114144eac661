package redislock_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// A waiting call with a short Lease doesn't end the places of calls with a longer Lease.
func TestLeasesDiffer(t *testing.T) {
	const prefix, name = "differ", "n"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	long := redislock.Options{Prefix: prefix, Lease: time.Hour}
	a, b := locker(t, addr, long), locker(t, addr, long)
	c := locker(t, addr, redislock.Options{Prefix: prefix, Lease: patience})
	held := locked(t, a, name)
	stays := calls(t.Context(), b, name)
	line(t, rdb, prefix, name, 1)
	ctx, cancel := context.WithCancel(t.Context())
	leaves := calls(ctx, c, name)
	line(t, rdb, prefix, name, 2)
	cancel()
	<-leaves.done
	line(t, rdb, prefix, name, 1)
	for _, key := range []string{
		redislock.LineName(prefix, name), redislock.SeenName(prefix, name),
	} {
		if left := rdb.PTTL(t.Context(), key).Val(); left <= patience {
			t.Errorf("%s ends in %v, with one in it who waits for %v", key, left, long.Lease)
		}
	}
	unlock(t, held)
	unlock(t, stays.lock(t))
}

// A lock is still held in its last millisecond: a waiting call sends its request again when the
// lock has ended.
func TestLastMillisecond(t *testing.T) {
	const prefix, name = "last", "n"
	rdb := client(t, redistest.Shared(t).Addr())
	ctx := t.Context()
	lock, script := redislock.LockName(prefix, name), redis.NewScript(redislock.AcquireScript)
	keys := []string{
		lock, redislock.LineName(prefix, name), redislock.SeenName(prefix, name),
		redislock.FenceName(prefix, name),
	}
	for range 200 {
		must(t, rdb.Set(ctx, lock, "another 1", 2*time.Millisecond).Err())
		for {
			answer, err := script.Run(ctx, rdb, keys, "me", 1000, "", "", "", 1000).Result()
			must(t, err)
			held, _ := answer.([]any)
			if held == nil {
				break
			}
			if held[0] == int64(0) {
				t.Fatal("a lock that is held was said to be somebody else's turn")
			}
		}
	}
}

// The turn of another call lasts until this call counts as gone. The reply to a waiting call
// contains the remaining time.
func TestTurnEnds(t *testing.T) {
	const prefix, name, there = "turns", "n", 60_000
	rdb := client(t, redistest.Shared(t).Addr())
	ctx := t.Context()
	lock, script := redislock.LockName(prefix, name), redis.NewScript(redislock.AcquireScript)
	keys := []string{
		lock, redislock.LineName(prefix, name), redislock.SeenName(prefix, name),
		redislock.FenceName(prefix, name),
	}
	ask := func(owner string) (held []any) { // nil: the lock was granted
		t.Helper()
		answer, err := script.Run(ctx, rdb, keys, owner, there, "1", "", "1", 1000).Result()
		must(t, err)
		held, _ = answer.([]any)
		return held
	}
	began := time.Now()
	must(t, rdb.Set(ctx, lock, "another 1", time.Hour).Err())
	ask("first/1")
	must(t, rdb.Del(ctx, lock).Err())
	held := ask("second/1")
	if held == nil {
		t.Fatal("another's turn was had")
	}
	back := -min(wallclock.SetSince(began), 0).Milliseconds()
	if left, _ := held[0].(int64); left <= there/2 || left > there+1+back {
		t.Errorf("it is the turn of one that counts as there for %d ms, and the next one is told %v",
			there, held)
	}
	if held := ask("first/1"); held != nil {
		t.Errorf("whose turn it is, is told %v", held)
	}
	must(t, rdb.Del(ctx, keys...).Err())
}

// A call that stops waiting gives up its place and sends no more requests.
func TestLeavingAsksNothing(t *testing.T) {
	const prefix, name = "asks", "n"
	addr := redistest.Shared(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	// A step that isn't answered in time is repeated.
	opts := redislock.Options{Prefix: prefix, Lease: time.Hour, OpTimeout: patience}
	a, b := locker(t, addr, opts), locker(t, proxy.Addr(), opts)
	held := locked(t, a, name)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		waits := calls(ctx, b, name)
		line(t, client(t, addr), prefix, name, 1)
		proxy.ResetCounts()
		cancel()
		<-waits.done
		line(t, client(t, addr), prefix, name, 0)
		if n := proxy.Counts()["EVALSHA"]; n != 1 {
			t.Errorf("leaving took %d steps", n)
		}
	}
	unlock(t, held)
}

// deaf returns a locker whose messages never arrive, and the proxy of its requests.
func deaf(
	t *testing.T, opts redislock.Options,
) (l *redislock.Locker, admin *redis.Client, wire *redistest.Proxy) {
	t.Helper()
	server := redistest.Start(t)
	admin = client(t, server.Addr())
	must(t,
		admin.Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "~*", "+@all",
			"resetchannels").Err())
	wire = redistest.StartProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{
		Addr: wire.Addr(), Username: "u", Password: "any", ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return open(t, rdb, opts), admin, wire
}

// If no messages can arrive, a call doesn't wait for them before it takes a place.
func TestNoMessagesNoWait(t *testing.T) {
	const prefix, name = "nowait", "n"
	l, admin, _ := deaf(t, redislock.Options{Prefix: prefix, Lease: time.Hour, OpTimeout: patience})
	must(t, admin.Set(t.Context(), redislock.LockName(prefix, name), "another 1", time.Hour).Err())
	for i := range 3 {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		waits := calls(ctx, l, name)
		line(t, admin, prefix, name, 1)
		if took := time.Since(began); took > patience/3 {
			t.Errorf("call %d had its place after %v", i, took)
		}
		cancel()
		<-waits.done
		line(t, admin, prefix, name, 0)
	}
}

// While messages don't arrive, waiting calls send their requests before they count as gone. The
// pauses take up to one and a half spans. The rest of the lease is for the request.
func TestAsksWithinItsLease(t *testing.T) {
	for _, lease := range []time.Duration{
		10 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second,
	} {
		l := open(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
			redislock.Options{Lease: lease})
		if pause := slices.Max(l.Naps(200)); pause > lease*6/10 {
			t.Errorf("a call pauses for %v, and counts as gone after %v", pause, lease)
		}
	}
}
