package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/cacheguard/lock"
	"github.com/cacheguard/cacheguard/internal/tenure"
)

var (
	_ lock.Continuer = (*Locker)(nil)
	_ lock.Seizer    = (*Locker)(nil)
)

// Continue takes over the lock of the holder with this fencing token. See [lock.Continuer].
func (l *Locker) Continue(ctx context.Context, name string, token int64) (lock.Lock, error) {
	return l.take(ctx, name, strconv.FormatInt(token, 10))
}

// SeizeUnsafely takes the lock of a name even if another holder has it, and breaks the promise that
// at most one holder has the lock. See [lock.Seizer].
func (l *Locker) SeizeUnsafely(ctx context.Context, name string) (lock.Lock, error) {
	return l.take(ctx, name, "")
}

// take takes a lock from the holder with the token from. If from is "", it takes the lock from any
// holder.
func (l *Locker) take(ctx context.Context, name, from string) (lock.Lock, error) {
	hold, err := l.keeper.Take(ctx, "redislock", name, func(
		ctx context.Context,
	) (*tenure.Hold, error) {
		q := l.question(name)
		a, err := l.step(ctx, q, func(ctx context.Context, q *question) (answer, error) {
			return l.takeOnce(ctx, q, from)
		})
		switch {
		case errors.Is(err, redis.Nil):
			return nil, lock.ErrLost
		case err != nil:
			// A lock that was taken isn't given back: its previous holder has to learn of the loss
			// before another call may have it.
			return nil, err
		}
		return l.begin(q, a), nil
	})
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (l *Locker) takeOnce(ctx context.Context, q *question, from string) (answer, error) {
	sent := time.Now()
	reply, err := l.run(ctx, takeScript, q.lock, q.fence, q.names.given(q.id),
		q.owner, l.lease, from, fenceMemory)
	if err != nil {
		return answer{}, err
	}
	return l.granted(sent, reply)
}

// granted returns the answer with the fencing token from the reply to a request. sent is the time
// when the request was sent.
func (l *Locker) granted(sent time.Time, reply any) (answer, error) {
	text, _ := reply.(string)
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil || token > mostToken {
		return answer{}, fmt.Errorf("the fencing token is %q, which is none", text)
	}
	until := sent.Add(l.opts.Lease)
	if !time.Now().Before(until) {
		return answer{},
			fmt.Errorf("%w, after %v", errLate, time.Since(sent).Round(time.Millisecond))
	}
	return answer{granted: true, token: token, until: until, sent: sent}, nil
}
