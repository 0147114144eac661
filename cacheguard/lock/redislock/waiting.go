package redislock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/tenure"
)

const (
	firstPoll = 20 * time.Millisecond // while messages don't arrive; then twice as long each time
	mostPoll  = time.Second / 4       // or a third of Lease: who asks later counts as gone
)

// await asks again whenever the question is woken, and from time to time, until it has the lock.
// What can't be asked is asked again for one Lease: then the trouble is the answer. So is that a
// lock has no end. a and err are the last answer.
func (l *Locker) await(ctx context.Context, q *question, a answer, err error) (*tenure.Hold, error) {
	if q.ear == nil {
		// Messages have to arrive before the answer that they make out of date: so this is asked
		// once more.
		q.ear = l.calls.add(q.id)
		defer l.calls.remove(q.id)
		l.calls.settle(ctx, l.opts.OpTimeout)
		a, err = l.put(ctx, q)
	}
	last := a             // that there was
	var trouble time.Time // since when there has been none
	most := min(mostPoll, l.opts.Lease/3)
	for poll := min(firstPoll, most); ; poll = min(2*poll, most) {
		switch {
		case ctx.Err() != nil:
			return nil, tenure.Why(ctx)
		case err == nil && a.granted:
			return l.begin(q, a), nil
		case err == nil:
			last, trouble = a, time.Time{}
		case trouble.IsZero():
			trouble = time.Now()
		case time.Since(trouble) > l.opts.Lease:
			return nil, err
		}
		pause := poll/2 + rand.N(poll)
		if err == nil && l.calls.arrive() {
			pause = l.pause(a.left)
		}
		timer := time.NewTimer(pause)
		select {
		case <-q.ear.word:
			if a, ok := l.given(q, last); ok {
				timer.Stop()
				return l.begin(q, a), nil
			}
			poll = firstPoll / 2
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, tenure.Why(ctx)
		}
		timer.Stop()
		a, err = l.put(ctx, q)
	}
}

// pause is how long a question waits for its message, when the lock, or another's turn, ends by
// itself in left. It is asked again before it counts as gone, and no sooner than the lock may be
// free.
func (l *Locker) pause(left time.Duration) time.Duration {
	pause := l.opts.Lease / 3
	if left > 0 && left < pause {
		pause = left
	}
	return pause + rand.N(pause/8+time.Millisecond)
}
