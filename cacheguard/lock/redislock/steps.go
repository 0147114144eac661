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

// fenceMemory is how long the fencing token of a name is remembered after it was last locked. After
// that the next one is the server's clock, which is larger unless it was set back by more than
// this.
var fenceMemory any = millis(24 * time.Hour)

// mostToken is the largest fencing token that is given. Redis' scripts count in doubles, which
// can't tell the next two numbers apart.
const mostToken = 1<<53 - 1

const mostMillis = math.MaxInt64 / int64(time.Millisecond) // of a duration

// errLate is the error of a question that was granted, when nobody can say any more whether that
// still holds.
var errLate = errors.New("the answer came when the lock had ended again")

// answer is what a question for a lock was answered with.
type answer struct {
	granted bool
	token   int64         // of the lock; if it wasn't granted, the last one that anybody was given
	until   time.Time     // if granted
	sent    time.Time     // when the question was
	left    time.Duration // until the lock ends by itself, or somebody else's turn; negative: it has no end
}

// put puts a question once.
func (l *Locker) put(ctx context.Context, q *question) (answer, error) {
	return l.step(ctx, q, l.putOnce)
}

// step does a step of a question. It doesn't break it off when ctx ends, for it may be carried out
// all the same, and doesn't wait for the answer then, unless that is due at once: another goroutine
// costs more than the question.
func (l *Locker) step(ctx context.Context, q *question, once func(context.Context, *question) (answer, error)) (answer, error) {
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

// putOnce puts a question. With a channel to be woken by it takes a place among those who wait.
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
	if err != nil { // it was set by hand: any token is larger
		token = 0
	}
	q.place.Store(place)
	a := answer{sent: sent, left: time.Duration(min(left, mostMillis)) * time.Millisecond, token: token}
	if tenure.Endless(a.left, l.opts.Lease) {
		return a, fmt.Errorf("%w: the key %q has no end, or one that no lease has, so no locker has left it like that; delete it to free the lock, or take the lock by SeizeUnsafely", lock.ErrHeld, q.lock)
	}
	return a, nil
}

// given is the lock that a message says this question was given, if it still has it. The message
// counts only if its token is larger than that of the last answer: one that is older tells of a
// lock that had ended when the question was answered, as when this process stood still in between.
// One lease counts from the question that was answered last, for that is how long it counted as
// there.
func (l *Locker) given(q *question, last answer) (answer, bool) {
	token, until := q.ear.token.Swap(0), last.sent.Add(l.opts.Lease)
	return answer{granted: true, token: token, until: until}, token > last.token && token <= mostToken && time.Now().Before(until)
}

// renew gives the lock more time.
func (l *Locker) renew(ctx context.Context, q *question) (until time.Time, held bool, err error) {
	sent := time.Now()
	reply, err := l.run(ctx, renewScript, q.lock, q.owner, l.lease)
	return sent.Add(l.opts.Lease), reply == int64(1), err
}

// release gives the lock back, and the place among those who wait, and wakes the next one.
func (l *Locker) release(ctx context.Context, q *question) error {
	// In a cluster PUBLISH tells of one node's listeners only.
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

// giveBack is release, which is tried again in the background if Redis doesn't answer: it may be
// standing still, and carry out when it goes on what gave this question the lock. After one Lease
// what it has given until now has ended by itself.
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

// run runs a script, with its keys and arguments, within OpTimeout.
func (l *Locker) run(ctx context.Context, s *script, args ...any) (any, error) {
	reply, err := redislink.Twice(ctx, l.link, func(ctx context.Context, rdb redis.UniversalClient) (any, error) {
		return s.run(ctx, rdb, args)
	})
	var told *redislink.Trouble
	switch {
	case ctx.Err() == nil && (errors.Is(err, redislink.ErrExhausted) || errors.Is(err, context.DeadlineExceeded)) && errors.As(l.link.Told(err), &told):
		// It is our deadline and nobody else's: callers would take it for theirs.
		told.Err = fmt.Errorf("within %v: %v", l.opts.OpTimeout, told.Err)
		return nil, told
	case redis.HasErrorPrefix(err, "FENCE"):
		key := strings.TrimPrefix(err.Error(), "FENCE ")
		return nil, fmt.Errorf("the last fencing token, in the key %q, is 2^53-1, and Redis' scripts can count no further; delete that key, and reset what remembers the token: %w", key, err)
	}
	rules := l.rules()
	return reply, rules.Explained(l.link.Told(rules.Explained(err)), args[:s.keys]...) // names of keys are not for the log
}

func flag(on bool) any {
	if on {
		return "1"
	}
	return ""
}

// millis is a duration as scripts have it.
func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
