package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
)

// taking returns two lockers. over is connected through a proxy that can lose the take-over of a
// lock, and past is connected directly. It also returns the lock of a holder.
func taking(
	t *testing.T, prefix string, lease time.Duration,
) (over, past *redislock.Locker, wire *redistest.Proxy, held lock.Lock) {
	t.Helper()
	addr := redistest.Shared(t).Addr()
	wire = redistest.StartProxy(t, addr)
	opts := redislock.Options{Prefix: prefix, Lease: lease}
	over, past = locker(t, wire.Addr(), opts), locker(t, addr, opts)
	return over, past, wire, locked(t, past, "n")
}

var isTake = redistest.IsEval(redislock.TakeScript)

// If the reply is lost, the request is sent again and returns the same lock.
func TestTakeWhoseAnswerIsLost(t *testing.T) {
	over, past, wire, held := taking(t, "takelost", time.Hour)
	wire.DropReply(isTake, redistest.Hangup)
	next, err := over.Continue(t.Context(), "n", held.Token())
	must(t, err)
	if next.Token() <= held.Token() {
		t.Errorf("token %d follows %d", next.Token(), held.Token())
	}
	if _, err := past.TryLock(t.Context(), "n"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("the lock that was continued is: %v; want ErrHeld", err)
	}
	unlock(t, next)
	unlock(t, locked(t, past, "n"))
}

// Continue takes the lock over only if the whole token is equal.
func TestContinueComparesWholeTokens(t *testing.T) {
	over, past, _, held := taking(t, "taketoken", time.Hour)
	token := held.Token()
	for _, wrong := range []int64{
		token - 1, token + 1, token / 10, token % 1e15, token % 10, 0, -token,
	} {
		if next, err := over.Continue(t.Context(), "n", wrong); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Continue with %d of %d: %v, %v; want ErrLost", wrong, token, next, err)
		}
	}
	must(t, held.Err())
	unlock(t, held)
	unlock(t, locked(t, past, "n"))
}

// If no caller learns that a lock was taken over, the lock is not given back. Otherwise another
// caller could have it before the previous holder learns of its loss.
func TestTakeThatFailsFreesNothing(t *testing.T) {
	const lease = 3 * time.Second
	addr := redistest.Shared(t).Addr()
	wire := redistest.StartProxy(t, addr)
	opts := redislock.Options{Prefix: "takefails", Lease: lease, OpTimeout: lease}
	past := locker(t, addr, opts)
	opts.OpTimeout = lease / 10 // only this locker gets no answers
	over := locker(t, wire.Addr(), opts)
	held := locked(t, past, "n")
	wire.DropReply(isTake)
	wire.DropReply(isTake)
	if next, err := over.Continue(t.Context(), "n", held.Token()); err == nil ||
		errors.Is(err, lock.ErrLost) {
		t.Fatalf("Continue without an answer: %v, %v", next, err)
	}
	for {
		next, err := past.TryLock(t.Context(), "n")
		if err == nil {
			if held.Err() == nil {
				t.Error("another has the lock, and its holder believes that it has it")
			}
			unlock(t, next)
			return
		}
		if !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
	}
}

// If a copy of the question arrives after the seized lock was given back, it takes no lock.
func TestLateSeizureTakesNothing(t *testing.T) {
	over, past, wire, held := taking(t, "takelate", time.Hour)
	late := wire.Duplicate(isTake)
	seized, err := over.SeizeUnsafely(t.Context(), "n")
	must(t, err)
	unlock(t, seized)
	next := locked(t, past, "n")
	_, _ = late.Release(t.Context())
	if is := client(t, wire.Addr()).Get(t.Context(),
		redislock.LockName("takelate", "n")).Val(); !strings.HasSuffix(is,
		fmt.Sprint(" ", next.Token())) {
		t.Errorf("the lock is %q; want that of the holder with the token %d", is, next.Token())
	}
	unlock(t, next)
	_ = held.Unlock(context.Background())
}

// A lock can be given back even if the server is out of memory.
func TestUnlockOutOfMemory(t *testing.T) {
	addr := redistest.Start(t).Addr()
	rdb := client(t, addr)
	l := locker(t, addr, redislock.Options{Prefix: "oom", Lease: time.Hour})
	held := locked(t, l, "n")
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	unlock(t, held)
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	unlock(t, locked(t, l, "n"))
}
