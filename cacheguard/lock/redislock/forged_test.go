package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
)

// mostToken is the largest integer that Redis' scripts can tell from the next integer.
const mostToken = 1<<53 - 1

// says checks that the text of an error contains what it must contain.
func says(t *testing.T, err error, what ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, part := range what {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("nothing about %q in: %v", part, err)
		}
	}
}

// If one of a lock's keys has another type, the error names the key.
func TestKeysOfAnotherType(t *testing.T) {
	const prefix, name, lease = "types", "n", 2 * time.Second
	addr := redistest.Start(t).Addr()
	rdb := client(t, addr)
	for key, wrong := range map[string]struct {
		is   string
		make func(key string) error
	}{
		redislock.LockName(prefix, name): {"string", func(key string) error {
			return rdb.LPush(t.Context(), key, "x").Err()
		}},
		redislock.LineName(prefix, name): {"sorted set", func(key string) error {
			return rdb.Set(t.Context(), key, "x", 0).Err()
		}},
		redislock.SeenName(prefix, name): {"hash", func(key string) error {
			return rdb.Set(t.Context(), key, "x", 0).Err()
		}},
		redislock.FenceName(prefix, name): {"string", func(key string) error {
			return rdb.LPush(t.Context(), key, "x").Err()
		}},
	} {
		t.Run(key, func(t *testing.T) {
			must(t, rdb.FlushAll(t.Context()).Err())
			l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease})
			held := locked(t, l, name)
			must(t, rdb.Del(t.Context(), key).Err())
			must(t, wrong.make(key))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var err error
			if key == redislock.FenceName(prefix, name) {
				unlock(t, held)
				_, err = l.Lock(ctx, name)
			} else {
				_, err = l.Lock(ctx, name) // at once, or after a lease
			}
			says(t, err, fmt.Sprintf("%q", key), wrong.is, "delete it")
			_ = held.Unlock(ctx)
		})
	}
}

// If the lock was set by hand without an expiry, a call doesn't wait for it for ever.
func TestLockWithoutEnd(t *testing.T) {
	const prefix, lease = "endless", 2 * time.Second
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease})
	for name, is := range map[string]struct {
		value string
		end   time.Duration
	}{
		"hand":   {"1", 0},
		"years":  {"1", 10000 * time.Hour},
		"holder": {"somebody/1 1700000000000000", 0},
	} {
		t.Run(name, func(t *testing.T) {
			key := redislock.LockName(prefix, name)
			must(t, rdb.Set(t.Context(), key, is.value, is.end).Err())
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := l.TryLock(ctx, name)
				says(t, err, key, "no end", "delete it", "SeizeUnsafely")
				if !errors.Is(err, lock.ErrHeld) {
					t.Errorf("TryLock says %v", err)
				}
				_, err = l.Lock(ctx, name)
				says(t, err, key, "no end", "delete it", "SeizeUnsafely")
				cancel()
			}
			seized, err := l.SeizeUnsafely(t.Context(), name)
			must(t, err)
			unlock(t, seized)
			unlock(t, locked(t, l, name))
		})
	}
}

// If the expiry of a held lock was removed by hand, the holder sets it again at its next renewal,
// and waiting calls go on waiting.
func TestLockThatIsMadePersistent(t *testing.T) {
	const prefix, name = "persist", "n"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	opts := redislock.Options{Prefix: prefix, Lease: 3 * time.Second}
	a, b := locker(t, addr, opts), locker(t, addr, opts)
	held := locked(t, a, name)
	must(t, rdb.Persist(t.Context(), redislock.LockName(prefix, name)).Err())
	waits := calls(t.Context(), b, name)
	line(t, rdb, prefix, name, 1)
	waittest.Until(t, "it has an end again", func() bool {
		return rdb.PTTL(t.Context(), redislock.LockName(prefix, name)).Val() > 0
	})
	unlock(t, held)
	unlock(t, waits.lock(t))
}

// The largest token is given once, for each way to get a token. After that, the error says what to
// do.
func TestTokensEnd(t *testing.T) {
	const prefix = "tokensend"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	opts := redislock.Options{Prefix: prefix, Lease: 3 * time.Second, OpTimeout: 3 * time.Second}
	a, b := locker(t, addr, opts), locker(t, addr, opts)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	forge := func(name string, token any) {
		must(t, rdb.Set(t.Context(), redislock.FenceName(prefix, name), token, 0).Err())
	}
	full := func(t *testing.T, name string, err error) {
		t.Helper()
		says(t, err, fmt.Sprintf("%q", redislock.FenceName(prefix, name)), "2^53-1",
			"delete that key")
	}
	last := func(t *testing.T, name string) lock.Lock {
		t.Helper()
		forge(name, mostToken-1)
		held := locked(t, a, name)
		if held.Token() != mostToken {
			t.Fatalf("token %d", held.Token())
		}
		return held
	}
	t.Run("asked for", func(t *testing.T) {
		unlock(t, last(t, "asked"))
		for range 2 {
			_, err := a.TryLock(ctx, "asked")
			full(t, "asked", err)
			_, err = a.Lock(ctx, "asked")
			full(t, "asked", err)
		}
		must(t, rdb.Del(t.Context(), redislock.FenceName(prefix, "asked")).Err())
		unlock(t, locked(t, a, "asked"))
	})
	t.Run("handed over", func(t *testing.T) {
		held := last(t, "handed")
		waits := calls(ctx, b, "handed")
		line(t, rdb, prefix, "handed", 1)
		unlock(t, held)
		<-waits.done
		full(t, "handed", waits.err)
		if n := rdb.Exists(t.Context(), redislock.LockName(prefix, "handed")).Val(); n != 0 {
			t.Error("somebody has the lock")
		}
	})
	t.Run("taken", func(t *testing.T) {
		held := last(t, "taken")
		_, err := b.Continue(t.Context(), "taken", held.Token())
		full(t, "taken", err)
		_, err = b.SeizeUnsafely(t.Context(), "taken")
		full(t, "taken", err)
		unlock(t, held)
	})
	t.Run("given by a leaver", func(t *testing.T) {
		forge("left", mostToken)
		stand(t, rdb, prefix, "left", "nobody/1", time.Now().Add(time.Hour))
		must(t, redislock.Leave(t.Context(), rdb, prefix, "left", "another/1"))
		if n := rdb.Exists(t.Context(), redislock.LockName(prefix, "left")).Val(); n != 0 {
			t.Error("somebody has the lock")
		}
	})
	t.Run("larger were never given", func(t *testing.T) {
		for i, forged := range []any{
			mostToken + 1, 1 << 62, "1e300", "inf", "nan", "0x20000000000000", "no number",
		} {
			name := fmt.Sprint("larger", i)
			last := int64(0)
			next := func(held lock.Lock) lock.Lock {
				t.Helper()
				if held.Token() <= last || held.Token() >= mostToken {
					t.Errorf("after %v, and %v in Redis, it has the token %d", last, forged,
						held.Token())
				}
				last = held.Token()
				forge(name, forged)
				return held
			}
			forge(name, forged)
			held := next(locked(t, a, name))
			waits := calls(ctx, b, name)
			line(t, rdb, prefix, name, 1)
			unlock(t, held)
			held = next(waits.lock(t))
			taken, err := a.Continue(ctx, name, held.Token())
			must(t, err)
			seized, err := b.SeizeUnsafely(ctx, name)
			must(t, err)
			last = next(taken).Token()
			unlock(t, next(seized))
			must(t, rdb.Del(t.Context(), redislock.LockName(prefix, name)).Err())
			unlock(t, next(locked(t, a, name)))
		}
	})
}

// Forged numbers in the queue break nothing.
func TestForgedLine(t *testing.T) {
	const prefix = "forgedline"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	for i, until := range []any{"x", "inf", "-inf", "nan", "9e18", 1 << 62} {
		for _, fair := range []bool{false, true} {
			name := fmt.Sprint(i, fair)
			l := locker(t, addr, redislock.Options{Prefix: prefix, Fair: fair})
			held := locked(t, l, name)
			must(t,
				rdb.ZAdd(t.Context(), redislock.LineName(prefix, name),
					redis.Z{Score: 1, Member: "forged/1"}).Err())
			must(t,
				rdb.HSet(t.Context(), redislock.SeenName(prefix, name), "forged/1", until).Err())
			unlock(t, held)
			must(t,
				rdb.ZAdd(t.Context(), redislock.LineName(prefix, name),
					redis.Z{Score: 1, Member: "forged/1"}).Err())
			must(t,
				rdb.HSet(t.Context(), redislock.SeenName(prefix, name), "forged/1", until).Err())
			held = locked(t, l, name)
			unlock(t, held)
		}
	}
}

// A message with a token that can't have been given is not believed.
func TestForgedMessage(t *testing.T) {
	const prefix, name = "forgedmessage", "n"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	l := locker(t, addr, redislock.Options{Prefix: prefix})
	held := locked(t, l, name)
	waits := calls(t.Context(), l, name)
	owner := line(t, rdb, prefix, name, 1)[0]
	process, _, _ := strings.Cut(owner, "/")
	for _, token := range []any{"-1", "", "x", "9223372036854775808", int64(math.MaxInt64)} {
		must(t, rdb.Publish(t.Context(), prefix+":"+process, fmt.Sprint(owner, " ", token)).Err())
	}
	before := held.Token()
	unlock(t, held)
	held = waits.lock(t)
	if held.Token() <= before || held.Token() > mostToken {
		t.Errorf("it has the token %d after %d", held.Token(), before)
	}
	unlock(t, held)
}
