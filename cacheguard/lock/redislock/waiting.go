package redislock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/tenure"
)

const (
	// While messages don't arrive, a call pauses before each request, for half of a span to one and
	// a half spans, at random. This is the first span; each next one is twice as long.
	firstPoll = 20 * time.Millisecond
	// The longest span, or a third of Lease if that is less.
	mostPoll = time.Second / 4
)

// await sends the request again each time a message wakes it, and also from time to time, until it
// has the lock. If Redis can't be used, await keeps trying for one Lease and then returns the
// error. It also does this if the lock has no end. a and err are the result of the last request.
func (l *Locker) await(
	ctx context.Context, q *question, a answer, err error,
) (*tenure.Hold, error) {
	if q.ear == nil {
		// The last reply came before the subscription, so it may be out of date, and the message
		// about the change may have been missed. So send the request once more.
		q.ear = l.calls.add(q.id)
		defer l.calls.remove(q.id)
		l.calls.settle(ctx, l.opts.OpTimeout)
		a, err = l.put(ctx, q)
	}
	last := a             // the last reply that was no error
	var trouble time.Time // the time since which all replies have been errors
	for poll := l.next(firstPoll / 2); ; poll = l.next(poll) {
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
		pause := nap(poll)
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

// nap returns the pause of a call to which messages don't arrive.
func nap(poll time.Duration) time.Duration { return poll/2 + rand.N(poll) }

// next returns the span after this one. A call that sends its request too late loses its place.
func (l *Locker) next(poll time.Duration) time.Duration {
	return min(2*poll, mostPoll, l.opts.Lease/3)
}

// pause returns how long a call waits for its message. left is the time until the lock, or another
// call's turn, ends by itself. The pause ends a little after that, or after about a third of Lease
// if that is earlier, so that the call keeps its place in the queue.
func (l *Locker) pause(left time.Duration) time.Duration {
	pause := l.opts.Lease / 3
	if left > 0 && left < pause {
		pause = left
	}
	return pause + rand.N(pause/8+time.Millisecond)
}
