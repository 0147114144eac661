package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// If a server comes back with old data, from a snapshot or as a replica that lagged, its fence is
// old. Its tokens are still larger than the tokens that were given since.
func TestTokensGrowWhereAFenceIsOld(t *testing.T) {
	const prefix = "oldfence"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	l := locker(t, addr, redislock.Options{Prefix: prefix})
	for i, forgets := range []func(t *testing.T, name, old string){
		func(t *testing.T, name, old string) {
			must(t, rdb.Set(t.Context(), redislock.FenceName(prefix, name), old, 0).Err())
		},
		func(t *testing.T, name, old string) { // in take.lua as well
			must(t, rdb.Set(t.Context(), redislock.FenceName(prefix, name), old, 0).Err())
			must(t, rdb.Del(t.Context(), redislock.LockName(prefix, name)).Err())
		},
	} {
		name := fmt.Sprint(i)
		unlock(t, locked(t, l, name))
		old := rdb.Get(t.Context(), redislock.FenceName(prefix, name)).Val()
		var last int64
		for range 5 {
			held := locked(t, l, name)
			last = held.Token()
			unlock(t, held)
		}
		forgets(t, name, old)
		<-time.After(time.Second / 10) // a correction of the clock may set it back a little
		held := locked(t, l, name)
		if held.Token() <= last {
			t.Errorf("token %d follows %d", held.Token(), last)
		}
		last = held.Token()
		forgets(t, name, old)
		<-time.After(time.Second / 10) // a correction of the clock may set it back a little
		next, err := l.SeizeUnsafely(t.Context(), name)
		must(t, err)
		if next.Token() <= last {
			t.Errorf("token %d was seized from %d", next.Token(), last)
		}
		unlock(t, next)
		_ = held.Unlock(t.Context())
	}
	for _, garbage := range []string{
		"-5", "-1", "0", "3", "1e300", "9223372036854775807", "nan", "inf", "",
	} {
		must(t,
			rdb.Set(t.Context(), redislock.FenceName(prefix, "garbage"), garbage,
				redis.KeepTTL).Err())
		before := int64(1 << 50)
		for range 2 {
			held := locked(t, l, "garbage")
			if held.Token() <= before || held.Token() >= 1<<53 {
				t.Errorf("with the fence %q: token %d follows %d", garbage, held.Token(), before)
			}
			before = held.Token()
			unlock(t, held)
		}
	}
}
