package redislock_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// Tokens grow even after all data was lost, and after the server's clock was set back.
func TestTokensGrow(t *testing.T) {
	const prefix, name = "fence", "n"
	server := redistest.Start(t)
	rdb := client(t, server.Addr())
	l := locker(t, server.Addr(), redislock.Options{Prefix: prefix})
	token := func() int64 {
		held := locked(t, l, name)
		defer unlock(t, held)
		if is := rdb.Get(t.Context(),
			redislock.LockName(prefix, name)).Val(); !strings.HasSuffix(is,
			" "+strconv.FormatInt(held.Token(), 10)) {
			t.Errorf("of the lock with the token %d it stands in Redis: %q", held.Token(), is)
		}
		return held.Token()
	}
	first := token()
	if second := token(); second <= first {
		t.Errorf("%d follows %d", second, first)
	} else {
		first = second
	}
	must(t, rdb.FlushAll(t.Context()).Err())
	<-time.After(time.Second / 10) // a correction of the clock may set it back a little
	if after := token(); after <= first {
		t.Errorf("%d follows %d that was forgotten", after, first)
	}
	must(t, server.Restart())
	<-time.After(time.Second / 10) // a correction of the clock may set it back a little
	if after := token(); after <= first {
		t.Errorf("%d follows %d after a restart", after, first)
	}
	// If a clock was set back, it was ahead before.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	must(t,
		rdb.Set(t.Context(), redislock.FenceName(prefix, name), strconv.FormatInt(ahead, 10),
			0).Err())
	for want := ahead + 1; want < ahead+4; want++ {
		if got := token(); got != want {
			t.Errorf("token %d; want %d", got, want)
		}
	}
}

// Whatever the key of a lock contains, a call returns an error or finds the name held. It never
// panics, and never takes a lock that isn't free.
func TestGarbage(t *testing.T) {
	const prefix = "garbage"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	ctx := t.Context()
	// This Lease is short; lasting has a longer one.
	const short = 3 * time.Second
	l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: short, OpTimeout: short})
	lasting := locker(t, addr, redislock.Options{Prefix: prefix})

	must(t, rdb.Set(ctx, redislock.LockName(prefix, "foreign"), "somebody else's", 0).Err())
	if held, err := l.TryLock(ctx, "foreign"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("what somebody else has set was had: %v, %v", held, err)
	}
	if held, err := l.Lock(ctx, "foreign"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("waiting for what never ends: %v, %v", held, err)
	}
	must(t, rdb.LPush(ctx, redislock.LockName(prefix, "list"), "x").Err())
	if held, err := l.Lock(ctx, "list"); err == nil {
		t.Errorf("where a list stands a lock was had: %v", held)
	}
	must(t, rdb.Set(ctx, redislock.FenceName(prefix, "fence"), "not a number", 0).Err())
	held, err := lasting.Lock(ctx, "fence")
	must(t, err)
	unlock(t, held)
	// No clock ever had this time.
	must(t, rdb.Set(ctx, redislock.FenceName(prefix, "far"), int64(1)<<60, 0).Err())
	for before := int64(0); before == 0; before = held.Token() {
		held = locked(t, lasting, "far")
		if held.Token() <= before || held.Token() > time.Now().Add(time.Hour).UnixMicro() {
			t.Errorf("token %d follows %d, and a forged one", held.Token(), before)
		}
		unlock(t, held)
	}

	held = locked(t, l, "taken")
	must(t, rdb.Set(ctx, redislock.LockName(prefix, "taken"), "somebody else's", 0).Err())
	<-held.Lost()
	if err := held.Unlock(ctx); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock says %v", err)
	}
	if v := rdb.Get(ctx, redislock.LockName(prefix, "taken")).Val(); v != "somebody else's" {
		t.Errorf("Unlock left %q", v)
	}
}

// If a copy of a command arrives after its call is over, other calls wait for one lease at most. It
// does no other harm.
func TestLateCopies(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease = "late", "n", 6 * time.Second
	addr := redistest.Start(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	opts := redislock.Options{Prefix: prefix, Lease: lease}
	a, b := locker(t, proxy.Addr(), opts), locker(t, addr, opts)
	acquire := proxy.Duplicate(redistest.IsEval(redislock.AcquireScript))
	held := locked(t, a, name)
	release := proxy.Duplicate(redistest.IsEval(redislock.ReleaseScript))
	unlock(t, held)

	// A release finds the lock of another holder.
	other := locked(t, b, name)
	_, err := release.Release(t.Context())
	must(t, err)
	if err := other.Err(); err != nil {
		t.Fatal(err)
	}
	if left := client(t, addr).PTTL(t.Context(),
		redislock.LockName(prefix, name)).Val(); left <= 0 {
		t.Fatalf("a late copy of a release ended another's lock: %v", left)
	}
	_, err = acquire.Release(t.Context())
	must(t, err)
	unlock(t, other)

	// An acquisition makes a ghost. No holder renews it.
	acquire = proxy.Duplicate(redistest.IsEval(redislock.AcquireScript))
	unlock(t, locked(t, a, name))
	_, err = acquire.Release(t.Context())
	must(t, err)
	if held, err := b.TryLock(t.Context(), name); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("there is no ghost: %v, %v", held, err)
	}
	began := time.Now()
	unlock(t, locked(t, b, name))
	t.Logf("a ghost cost %v of a lease of %v", time.Since(began), lease)
}

// Clients send only durations: the requests of two calls differ only in their owner. So the clocks
// of clients don't matter.
func TestDurationsOnly(t *testing.T) {
	t.Parallel() // it waits most of the time
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	const lease = 6 * time.Second
	l := locker(t, proxy.Addr(),
		redislock.Options{Prefix: "durations", Lease: lease, OpTimeout: lease})
	ctx := t.Context()
	sent := make(chan []string, 100)
	proxy.DropCommand(func(c redistest.Command) bool { // it sees all and takes none
		if c.Name == "EVALSHA" {
			var args []string
			for _, arg := range c.Args {
				args = append(args, string(arg))
			}
			sent <- args
		}
		return false
	})
	var rounds [2][][]string
	for i := range rounds {
		held, err := l.Lock(ctx, "n")
		must(t, err)
		for {
			args := <-sent
			if len(rounds[i]) == 1 && slices.Equal(args, rounds[i][0]) {
				continue // on a busy machine a reply may be late, and then the request is repeated
			}
			rounds[i] = append(rounds[i], args)
			if len(rounds[i]) == 3 { // acquired, and renewed twice
				break
			}
		}
		unlock(t, held)
		// On a busy machine there may be one more renewal before it.
		for release := redis.NewScript(redislock.ReleaseScript).Hash(); (<-sent)[0] != release; {
		}
	}
	for i := range rounds[0] {
		a, b := rounds[0][i], rounds[1][i]
		differ := 0
		for j := range a {
			if a[j] != b[j] {
				differ++
			}
		}
		if len(a) != len(b) || differ != 1 {
			t.Errorf("later it is not only the owner that differs:\n%q\n%q", a, b)
		}
	}
}

// Tokens grow even while the server's clock stands still, for each way to get a lock.
func TestTokensGrowWhileTheClockStandsStill(t *testing.T) {
	const prefix = "fence"
	server := miniredis.RunT(t)
	server.SetTime(time.Now())
	rdb := client(t, server.Addr())
	a, b := locker(t, server.Addr(), redislock.Options{Prefix: prefix}),
		locker(t, server.Addr(), redislock.Options{Prefix: prefix})
	for how, next := range map[string]func(name string, held lock.Lock) lock.Lock{
		"asked": func(name string, held lock.Lock) lock.Lock {
			unlock(t, held)
			return locked(t, a, name)
		},
		"given": func(name string, held lock.Lock) lock.Lock {
			waits := calls(t.Context(), b, name)
			line(t, rdb, prefix, name, 1)
			unlock(t, held)
			return waits.lock(t)
		},
		"seized": func(name string, _ lock.Lock) lock.Lock {
			held, err := a.SeizeUnsafely(t.Context(), name)
			must(t, err)
			return held
		},
		"continued": func(name string, held lock.Lock) lock.Lock {
			held, err := b.Continue(t.Context(), name, held.Token())
			must(t, err)
			return held
		},
	} {
		held := locked(t, a, how)
		for range 2 {
			after := next(how, held)
			if after.Token() <= held.Token() {
				t.Errorf("%s: %d follows %d", how, after.Token(), held.Token())
			}
			held = after
		}
		unlock(t, held)
	}
}
