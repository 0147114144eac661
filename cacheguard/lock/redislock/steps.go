package redislock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/redislink"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

// fenceMemory is the time for which Redis remembers the fencing token of a name after the name was
// last locked. After that time the next token is the server's clock, which is larger unless the
// clock was set back by more than this time.
var fenceMemory any = millis(24 * time.Hour)

// mostToken is the largest fencing token that is given. Redis' scripts count in doubles, which
// can't tell the next two integers apart.
const mostToken = 1<<53 - 1

const mostMillis = math.MaxInt64 / int64(time.Millisecond) // the longest time.Duration

// errLate is the error if a request was granted, but the reply arrived so late that the lock may
// have ended again.
var errLate = errors.New("the answer came when the lock had ended again")

// answer is the reply to a request for a lock.
type answer struct {
	granted bool
	// The fencing token of the lock; if the lock wasn't granted, the last one given to anybody.
	token int64
	until time.Time // the end of the lease, if granted
	sent  time.Time // when the request was sent
	// The time until the lock, or another call's turn, ends by itself; negative: the lock has no
	// end.
	left time.Duration
}

// put sends a request once.
func (l *Locker) put(ctx context.Context, q *question) (answer, error) {
	return l.step(ctx, q, l.putOnce)
}

// step does a step of a request. When ctx ends, it doesn't cancel the step, because Redis may carry
// the step out anyway, but it stops waiting for the reply. The exception is a step whose reply is
// expected at once. This step runs on this goroutine, because another goroutine would cost more
// than the step, and step waits for the reply even after the end of ctx.
func (l *Locker) step(
	ctx context.Context, q *question, once func(context.Context, *question) (answer, error),
) (answer, error) {
	if l.link.Prompt(ctx) {
		return once(context.WithoutCancel(ctx), q)
	}
	type reply struct {
		answer
		err error
	}
	done := make(chan reply, 1)
	q.asking.Add(1)
	l.keeper.Go(func() {
		defer q.asking.Done()
		a, err := once(context.WithoutCancel(ctx), q)
		done <- reply{a, err}
	})
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// putOnce sends a request. If the call has an ear that can wake it, putOnce also takes a place in
// the queue.
func (l *Locker) putOnce(ctx context.Context, q *question) (answer, error) {
	sent := time.Now()
	place, _ := q.place.Load().(string)
	reply, err := l.run(ctx, acquireScript,
		q.lock, q.line, q.seen, q.fence,
		q.owner, l.lease, flag(q.ear != nil), place, flag(l.opts.Fair), fenceMemory)
	if err != nil {
		return answer{}, err
	}
	parts, held := reply.([]any)
	if !held {
		return l.granted(sent, reply)
	}
	if len(parts) != 3 {
		return answer{}, fmt.Errorf("the answer makes no sense: %v", reply)
	}
	left, _ := parts[0].(int64)
	place, _ = parts[1].(string)
	last, _ := parts[2].(string)
	token, err := strconv.ParseInt(last, 10, 64)
	if err != nil { // the key was set by hand: any token is larger
		token = 0
	}
	q.place.Store(place)
	a := answer{
		sent: sent, left: time.Duration(min(left, mostMillis)) * time.Millisecond, token: token,
	}
	if tenure.Endless(a.left, l.opts.Lease) {
		return a, fmt.Errorf(
			"%w: the key %q has no end, or one that no lease has, so no locker has left it like that; delete it to free the lock, or take the lock by SeizeUnsafely",
			lock.ErrHeld, q.lock)
	}
	return a, nil
}

// given returns the lock that a message has handed to this call, and whether the call still has the
// lock. The message is valid only if its token is larger than the token of the last reply. An older
// message is about a lock that had ended when that reply was sent, for example because this process
// was stopped in between. The lease starts when the last request with a reply was sent, because
// Redis kept this call in the queue until one lease after that time.
func (l *Locker) given(q *question, last answer) (answer, bool) {
	token, until := q.ear.token.Swap(0), last.sent.Add(l.opts.Lease)
	return answer{granted: true, token: token, until: until}, token > last.token &&
		token <= mostToken && time.Now().Before(until)
}

// renew makes the lock last for one lease from now.
func (l *Locker) renew(ctx context.Context, q *question) (until time.Time, held bool, err error) {
	sent := time.Now()
	reply, err := l.run(ctx, renewScript, q.lock, q.owner, l.lease)
	return sent.Add(l.opts.Lease), reply == int64(1), err
}

// release gives back the lock and the place in the queue, and hands the lock to the next call or
// wakes it.
func (l *Locker) release(ctx context.Context, q *question) error {
	// In a cluster PUBLISH counts the subscribers of one node only.
	counts := !l.link.IsCluster()
	reply, err := l.run(ctx, releaseScript,
		q.lock, q.line, q.seen, q.names.given(q.id), q.fence,
		q.owner, flag(l.opts.Fair), flag(counts), l.again, fenceMemory)
	switch {
	case err != nil:
		return fmt.Errorf("redislock: %q: giving it back: %w", q.name, err)
	case reply != int64(1):
		return lock.ErrLost
	default:
		return nil
	}
}

// giveBack is like release. If Redis doesn't reply, giveBack also repeats the release in the
// background, because a Redis that hangs may carry out this call's request for the lock later.
// After one Lease every lock that Redis has granted to the call until now has expired.
func (l *Locker) giveBack(ctx context.Context, q *question) error {
	release := func(ctx context.Context) (answered bool, err error) {
		err = l.release(ctx, q)
		return err == nil || errors.Is(err, lock.ErrLost) || !redislink.NoAnswer(err), err
	}
	until := time.Now().Add(l.opts.Lease)
	answered, err := release(ctx)
	if !answered {
		l.debts.Owe(until, func() bool {
			answered, _ := release(context.Background())
			return answered
		})
	}
	return err
}

// run runs a script with its keys and arguments. It takes OpTimeout at most.
func (l *Locker) run(ctx context.Context, s *script, args ...any) (any, error) {
	reply, err := redislink.Twice(ctx, l.link, func(
		ctx context.Context, rdb redis.UniversalClient,
	) (any, error) {
		return s.run(ctx, rdb, args)
	})
	var told *redislink.Trouble
	switch {
	case ctx.Err() == nil &&
		(errors.Is(err, redislink.ErrExhausted) || errors.Is(err, context.DeadlineExceeded)) &&
		errors.As(l.link.Told(err), &told):
		// The deadline is OpTimeout. Callers would take DeadlineExceeded for the end of their
		// context.
		told.Err = fmt.Errorf("within %v: %v", l.opts.OpTimeout, told.Err)
		return nil, told
	case redis.HasErrorPrefix(err, "FENCE"):
		key := strings.TrimPrefix(err.Error(), "FENCE ")
		return nil,
			fmt.Errorf("the last fencing token, in the key %q, is 2^53-1, and Redis' scripts can count no further; delete that key, and reset what remembers the token: %w",
				key, err)
	}
	rules := l.rules()
	// The log must not contain names of keys.
	return reply, rules.Explained(l.link.Told(rules.Explained(err)), args[:s.keys]...)
}

func flag(on bool) any {
	if on {
		return "1"
	}
	return ""
}

// millis returns a duration in ms, as an argument of scripts.
func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
