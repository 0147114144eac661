package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/cacheguard/lock/redislock"
	"github.com/cacheguard/cacheguard/internal/redistest"
	"github.com/cacheguard/cacheguard/internal/waittest"
	"github.com/cacheguard/cacheguard/internal/wallclock"
)

// stand puts an owner into the queue. The owner counts as present until the given time.
func stand(t *testing.T, rdb *redis.Client, prefix, name, owner string, until time.Time) {
	t.Helper()
	must(t,
		rdb.ZAdd(t.Context(), redislock.LineName(prefix, name),
			redis.Z{Score: 1, Member: owner}).Err())
	must(t, rdb.HSet(t.Context(), redislock.SeenName(prefix, name), owner, until.UnixMicro()).Err())
}

// If the first call in the queue can't get messages, the lock goes to the next call. But if Fair
// keeps the order, the first call has the turn until it counts as gone.
func TestFirstIsDeaf(t *testing.T) {
	for _, fair := range []bool{true, false} {
		t.Run(fmt.Sprint(fair), func(t *testing.T) {
			prefix, name := "deaf", fmt.Sprint(fair)
			addr := redistest.Shared(t).Addr()
			rdb := client(t, addr)
			l := locker(t, addr, redislock.Options{Prefix: prefix, Fair: fair})
			held := locked(t, l, name)
			stand(t, rdb, prefix, name, "deaf/1", time.Now().Add(time.Hour))
			unlock(t, held)
			next, err := l.TryLock(t.Context(), name)
			switch {
			case !fair && err != nil:
				t.Errorf("behind one who can't be told: %v", err)
			case fair && !errors.Is(err, lock.ErrHeld):
				t.Errorf("out of turn: %v, %v", next, err)
			case !fair:
				unlock(t, next)
			}
		})
	}
}

// A stopped process doesn't count as present, even though its connection is alive.
func TestFirstStandsStill(t *testing.T) {
	for _, fair := range []bool{true, false} {
		t.Run(fmt.Sprint(fair), func(t *testing.T) {
			prefix, name := "still", fmt.Sprint(fair)
			addr := redistest.Shared(t).Addr()
			rdb := client(t, addr)
			l := locker(t, addr, redislock.Options{Prefix: prefix, Fair: fair})
			held := locked(t, l, name)
			connection := rdb.Subscribe(t.Context(), prefix+":still")
			defer connection.Close()
			_, err := connection.Receive(t.Context())
			must(t, err)
			stand(t, rdb, prefix, name, "still/1", time.Now().Add(-time.Minute))
			unlock(t, held)
			next, err := l.TryLock(t.Context(), name)
			if err != nil {
				t.Fatalf("behind one who stands still: %v", err)
			}
			unlock(t, next)
			line(t, rdb, prefix, name, 0)
		})
	}
}

// Redis remembers the token of a lock that was handed over in the same way as the token of a lock
// that was requested.
func TestGivenTokenIsRemembered(t *testing.T) {
	const prefix, name = "given", "n"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	a, b := locker(t, addr, redislock.Options{Prefix: prefix}),
		locker(t, addr, redislock.Options{Prefix: prefix})
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, rdb, prefix, name, 1)
	unlock(t, held)
	next := waits.lock(t)
	if text := rdb.Get(t.Context(),
		redislock.FenceName(prefix, name)).Val(); text != fmt.Sprint(next.Token()) ||
		next.Token() <= held.Token() {
		t.Errorf("token %d follows %d; remembered is %s", next.Token(), held.Token(), text)
	}
	unlock(t, next)
}

// The lock is free because the first call can't get messages. If this call leaves, it passes the
// lock on to the next call, with a token that is larger than the last token. This is also true if
// the clock was set back, and if the last token was forgotten.
func TestLeavingFirstPassesOn(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprint(forgotten), func(t *testing.T) {
			prefix, name := "leavingfirst", fmt.Sprint(forgotten)
			addr := redistest.Shared(t).Addr()
			rdb := client(t, addr)
			opts := redislock.Options{Prefix: prefix, Fair: true, Lease: time.Hour}
			a, b := locker(t, addr, opts), locker(t, addr, opts)
			held := locked(t, a, name)
			waits := calls(t.Context(), b, name)
			line(t, rdb, prefix, name, 1)
			stand(t, rdb, prefix, name, "deaf/1", time.Now().Add(time.Hour))
			unlock(t, held)
			line(t, rdb, prefix, name, 2)
			last := held.Token()
			if forgotten {
				must(t, rdb.Del(t.Context(), redislock.FenceName(prefix, name)).Err())
			} else {
				last = time.Now().Add(time.Hour).UnixMicro()
				must(t,
					rdb.Set(t.Context(), redislock.FenceName(prefix, name), last, time.Hour).Err())
			}
			must(t, redislock.Leave(t.Context(), rdb, prefix, name, "deaf/1"))
			next := waits.lock(t)
			if next.Token() <= last {
				t.Errorf("token %d follows %d", next.Token(), last)
			}
			unlock(t, next)
		})
	}
}

// A message that is older than the last reply is about a lock that has ended. A stopped process
// that was given this lock in the meantime doesn't believe the message, but sends its request
// again.
func TestOldMessageIsNotBelieved(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprint(fair), func(t *testing.T) {
			prefix, name := "old", fmt.Sprint(fair)
			addr := redistest.Shared(t).Addr()
			rdb := client(t, addr)
			opts := redislock.Options{Prefix: prefix, Lease: time.Hour, Fair: fair}
			a, b := locker(t, addr, opts), locker(t, addr, opts)
			held := locked(t, a, name)
			waits := calls(t.Context(), b, name)
			owner := line(t, rdb, prefix, name, 1)[0]
			process, _, _ := strings.Cut(owner, "/")
			seen := func() string {
				return rdb.HGet(t.Context(), redislock.SeenName(prefix, name), owner).Val()
			}
			hears := func(message string) {
				t.Helper()
				before := seen()
				must(t, rdb.Publish(t.Context(), prefix+":"+process, message).Err())
				waittest.Until(t, "it asks, or returns", func() bool {
					return waits.returned() || seen() != before
				})
			}
			hears(fmt.Sprint(owner, " ", held.Token()-1))
			hears(fmt.Sprint(owner, " ", held.Token()))
			taken, err := a.SeizeUnsafely(t.Context(), name)
			must(t, err)
			hears(owner) // and gets the message about this lock
			hears(fmt.Sprint(owner, " ", taken.Token()))
			unlock(t, taken)
			if next := waits.lock(t); next.Token() <= taken.Token() {
				t.Errorf("while one had the lock with the token %d, another believed a message of %d",
					taken.Token(), next.Token())
			} else {
				unlock(t, next)
			}
			_ = held.Unlock(t.Context()) // the lock was lost
		})
	}
}

// During a turn no call has the lock, but there is a last token. A message whose token is not
// larger is ignored in this case, too.
func TestOldMessageIsNotBelievedOutOfTurn(t *testing.T) {
	const prefix, name = "oldturn", "n"
	addr := redistest.Shared(t).Addr()
	rdb := client(t, addr)
	l := locker(t, addr, redislock.Options{Prefix: prefix, Lease: time.Hour, Fair: true})
	first := locked(t, l, name)
	unlock(t, first)
	stand(t, rdb, prefix, name, "deaf/1", time.Now().Add(time.Hour))
	waits := calls(t.Context(), l, name)
	owner := line(t, rdb, prefix, name, 2)[1]
	process, _, _ := strings.Cut(owner, "/")
	before := rdb.HGet(t.Context(), redislock.SeenName(prefix, name), owner).Val()
	must(t,
		rdb.Publish(t.Context(), prefix+":"+process, fmt.Sprint(owner, " ", first.Token())).Err())
	waittest.Until(t, "it asks, or returns", func() bool {
		return waits.returned() ||
			rdb.HGet(t.Context(), redislock.SeenName(prefix, name), owner).Val() != before
	})

	must(t, redislock.Leave(t.Context(), rdb, prefix, name, "deaf/1"))
	if next := waits.lock(t); next.Token() <= first.Token() {
		t.Errorf("a message of %d was believed, which had ended", next.Token())
	} else {
		unlock(t, next)
	}
}

// A lock that was handed over lasts for one lease from the last question. A holder that can't renew
// it knows when this lease is over.
func TestGivenLockEndsInTime(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease = "intime", "n", 9 * time.Second
	addr := redistest.Start(t).Addr()
	rdb := client(t, addr)
	opts := redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: 3 * time.Second}
	commands := redistest.StartProxy(t, addr)
	a, b := locker(t, addr, opts),
		open(t, separate{client(t, commands.Addr()), client(t, addr)}, opts)
	must(t, b.Warm(t.Context()))
	held := locked(t, a, name)
	began := time.Now()
	waits := calls(t.Context(), b, name)
	owner := line(t, rdb, prefix, name, 1)[0]
	waittest.Until(t, "a while passes", func() bool {
		seen, err := rdb.HGet(t.Context(), redislock.SeenName(prefix, name), owner).Int64()
		must(t, err)
		return time.Until(time.UnixMicro(seen)) < lease-lease/4
	})

	waittest.Until(t, "the reply to the call in line", commands.Idle)
	commands.Blackhole(true)
	defer commands.Blackhole(false)
	unlock(t, held)
	given := waits.lock(t)
	waittest.Until(t, "the lock has ended", func() bool {
		return rdb.Exists(t.Context(), redislock.LockName(prefix, name)).Val() == 0
	})
	wallclock.CatchUp(began)

	if err := given.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the lock is another's to take, and its holder has %v", err)
	}
}

// asking is a hook on the commands of a client.
type asking func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (a asking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		return a(ctx, cmd, next)
	}
}

func (a asking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a asking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// If a call learns that it was given the lock when this lock has already ended, it sends its
// request again, because a lost lock is of no use to the caller.
func TestGivenLockThatHasEnded(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, name, lease = "hasended", "n", 4 * time.Second
	addr := redistest.Start(t).Addr()
	rdb := client(t, addr)
	var deaf atomic.Bool
	asks := make(chan struct{}, 10)
	rdb.AddHook(asking(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !deaf.Load() {
			return next(ctx, cmd)
		}
		asks <- struct{}{}
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}))
	opts := redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease}
	// The first holder's lease doesn't matter, so it is long enough for a busy machine.
	a := locker(t, addr, redislock.Options{Prefix: prefix, Lease: time.Hour, OpTimeout: patience})
	b := open(t, rdb, opts)
	must(t, b.Warm(t.Context()))
	held := locked(t, a, name)
	waits := calls(t.Context(), b, name)
	line(t, client(t, addr), prefix, name, 1)
	deaf.Store(true)
	// And gets no other reply until OpTimeout is over, more than a lease after the question that
	// got a reply.
	<-asks
	unlock(t, held)
	<-asks // the same question once more
	select {
	case <-asks: // the next question
	case <-waits.done:
	}
	deaf.Store(false)
	next := waits.lock(t)
	must(t, next.Err())
	unlock(t, next)
}

// If a reply is read when the granted lock has already ended, the call doesn't get this lock. Lock
// sends its request again, and TryLock returns an error that tells what happened.
func TestAnswerThatIsReadTooLate(t *testing.T) {
	t.Parallel() // it waits most of the time
	const prefix, lease = "readlate", 4 * time.Second
	addr := redistest.Start(t).Addr()
	rdb, operator := client(t, addr), client(t, addr)
	var stands atomic.Bool
	rdb.AddHook(asking(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		began := time.Now()
		err := next(ctx, cmd)
		// This process is stopped until the lock has ended. A request without a reply in time
		// doesn't count, because it is repeated.
		if err == nil && stands.CompareAndSwap(true, false) {
			waittest.Until(t, "the lock has ended", func() bool {
				return operator.Exists(t.Context(), redislock.LockName(prefix, "lock"),
					redislock.LockName(prefix, "try")).Val() == 0
			})
			wallclock.CatchUp(began)
		}
		return err
	}))
	l := open(t, rdb, redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease})
	must(t, l.Warm(t.Context()))
	stands.Store(true)
	held := locked(t, l, "lock")
	must(t, held.Err())
	unlock(t, held)
	stands.Store(true)
	_, err := l.TryLock(t.Context(), "try")
	says(t, err, "when the lock had ended again")
}

// A lease counts from the question, not from the reply, because Redis may have begun the lease long
// before the reply was read.
func TestLeaseCountsFromItsQuestion(t *testing.T) {
	const prefix, name, lease = "fromquestion", "n", 6 * time.Second
	addr := redistest.Shared(t).Addr()
	rdb, operator := client(t, addr), client(t, addr)
	var asked atomic.Pointer[time.Time]
	rdb.AddHook(asking(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		now := time.Now()
		err := next(ctx, cmd)
		waittest.Until(t, "the answer is old", func() bool {
			return operator.PTTL(t.Context(),
				redislock.LockName(prefix, name)).Val() < lease-lease/10
		})

		asked.Store(&now)
		return err
	}))
	l := open(t, rdb, redislock.Options{Prefix: prefix, Lease: lease, OpTimeout: lease})
	must(t, l.Warm(t.Context()))
	held := locked(t, l, name)
	counts := func(what string) time.Time {
		t.Helper()
		until := held.Until()
		if most := asked.Load().Add(lease); until.After(most) {
			t.Errorf("%s: the lock counts as held for %v longer than Redis may have it", what,
				until.Sub(most))
		}
		return until
	}
	until := counts("asked for")
	waittest.Until(t, "it is renewed", func() bool { return held.Until() != until })
	counts("renewed")
	unlock(t, held)
}

// If a call finds the lock held before it can be woken, it sends its request once more as soon as
// it can be woken. Then it has a place.
func TestColdLockerGetsAPlace(t *testing.T) {
	const prefix, name = "cold", "n"
	addr := redistest.Shared(t).Addr()
	opts := redislock.Options{Prefix: prefix, Lease: time.Hour}
	held := locked(t, locker(t, addr, opts), name)
	waits := calls(t.Context(), open(t, client(t, addr), opts), name)
	line(t, client(t, addr), prefix, name, 1)
	unlock(t, held)
	unlock(t, waits.lock(t))
}

// The release of a question is sent after the question has arrived. Otherwise the release could
// overtake the question, and a lock without a holder would stay.
func TestLeavingFollowsTheQuestion(t *testing.T) {
	const prefix, name = "follows", "n"
	addr := redistest.Shared(t).Addr()
	proxy := redistest.StartProxy(t, addr)
	opts := redislock.Options{Prefix: prefix, Lease: time.Hour, OpTimeout: 2 * patience}
	// There are more connections than the question needs. Otherwise the release would have to dial
	// first.
	rdb := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), ContextTimeoutEnabled: true, MinIdleConns: 4,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	a, b := open(t, rdb, opts), locker(t, addr, opts)
	must(t, a.Warm(t.Context()))
	waittest.Until(t, "it has connections", func() bool { return rdb.PoolStats().IdleConns >= 4 })
	gate := make(chan struct{})
	late := proxy.DelayCommand(redistest.IsEval(redislock.AcquireScript), gate)
	// Nearer than OpTimeout, so that the call leaves without its answer.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	leaves := calls(ctx, a, name)
	<-late.Struck()
	cancel()
	<-leaves.done
	through := client(t, proxy.Addr())
	for range 100 { // so that everything that was sent arrives before the question
		must(t, through.Ping(t.Context()).Err())
	}
	close(gate)
	must(t, a.Close()) // Close waits for both
	unlock(t, locked(t, b, name))
}
