package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/redislink"
)

// fenceMemory is how long the fencing token of a name is remembered after it was last locked. After that the next one
// is the server's clock, which is larger unless it was set back by more than this.
const fenceMemory = 24 * time.Hour

// answer is what a question for a lock was answered with.
type answer struct {
	granted bool
	token   int64         // if granted
	until   time.Time     // if granted
	sent    time.Time     // when the question was
	left    time.Duration // until the lock ends by itself, or somebody else's turn; negative: it has no end
}

// put puts a question once, and doesn't wait for the answer when ctx has ended, which is no reason to break off a step
// that may be carried out all the same.
func (l *Locker) put(ctx context.Context, q *question) (answer, error) {
	type reply struct {
		answer
		err error
	}
	done := make(chan reply, 1)
	q.asking.Add(1)
	l.keeper.Go(func() {
		defer q.asking.Done()
		a, err := l.putOnce(context.WithoutCancel(ctx), q)
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
		[]string{q.names.lock, q.names.line, q.names.seen, q.names.fence},
		q.owner, l.opts.Lease.Milliseconds(), flag(q.ear != nil), place, flag(l.opts.Fair), l.channels(),
		l.opts.Lease.Milliseconds(), fenceMemory.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	parts, _ := reply.([]any)
	switch {
	case len(parts) == 2 && parts[0] == "granted":
		text, _ := parts[1].(string)
		token, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return answer{}, fmt.Errorf("the fencing token is %q, which is none", text)
		}
		until := sent.Add(l.opts.Lease)
		if !time.Now().Before(until) {
			return answer{}, fmt.Errorf("the answer came after %v, when the lock had ended again", l.opts.Lease)
		}
		return answer{granted: true, token: token, until: until, sent: sent}, nil
	case len(parts) == 3 && parts[0] == "held":
		left, _ := parts[1].(int64)
		place, _ := parts[2].(string)
		q.place.Store(place)
		return answer{sent: sent, left: time.Duration(left) * time.Millisecond}, nil
	default:
		return answer{}, fmt.Errorf("the answer makes no sense: %v", reply)
	}
}

// given is the lock that a message says this question was given, if it still has it: one lease counts from the last
// question that was answered, for that is how long it counted as there.
func (l *Locker) given(q *question, last answer) (answer, bool) {
	token, until := q.ear.token.Swap(0), last.sent.Add(l.opts.Lease)
	return answer{granted: true, token: token, until: until}, token > 0 && time.Now().Before(until)
}

// renew gives the lock more time.
func (l *Locker) renew(ctx context.Context, q *question) (until time.Time, held bool, err error) {
	sent := time.Now()
	reply, err := l.run(ctx, renewScript, []string{q.names.lock}, q.owner, l.opts.Lease.Milliseconds())
	return sent.Add(l.opts.Lease), reply == int64(1), err
}

// release gives the lock back, and the place among those who wait, and wakes the next one.
func (l *Locker) release(ctx context.Context, q *question) error {
	// In a cluster PUBLISH tells of one node's listeners only.
	counts := !l.link.IsCluster()
	reply, err := l.run(ctx, releaseScript,
		[]string{q.names.lock, q.names.line, q.names.seen, q.names.given(q.owner), q.names.fence},
		q.owner, flag(l.opts.Fair), l.channels(), flag(counts), 2*l.opts.OpTimeout.Milliseconds(), fenceMemory.Milliseconds())
	switch {
	case err != nil:
		return fmt.Errorf("redislock: %q: giving it back: %w", q.name, err)
	case reply != int64(1):
		return lock.ErrLost
	default:
		return nil
	}
}

// run runs a script within OpTimeout.
func (l *Locker) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (any, error) {
	reply, err := redislink.Twice(ctx, l.link, func(ctx context.Context, rdb redis.UniversalClient) (any, error) {
		return script.Run(ctx, rdb, keys, args...).Result()
	})
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		// It is our deadline and nobody else's: callers would take it for theirs.
		return nil, fmt.Errorf("no answer from Redis within %v: %v", l.opts.OpTimeout, err)
	}
	return reply, err
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}
