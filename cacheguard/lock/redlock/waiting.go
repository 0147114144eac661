package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/tenure"
)

const (
	// mostTries is the number of times that TryLock tries again when the votes are split. With each
	// try it is less likely that other callers ask at the same moment.
	mostTries = 8

	// After a split vote a call tries again after a random part of a span, which doubles each time.
	leastSpan = 2 * time.Millisecond
	mostSpan  = 128 * time.Millisecond

	// A call that waits for a held lock, and doesn't get messages from a majority, polls. Its pause
	// doubles each time.
	leastPoll = 5 * time.Millisecond
	mostPoll  = 100 * time.Millisecond

	// A call that gets messages sends its request again after mostPause, because a message may have
	// been lost.
	mostPause = time.Second

	// Processes that are woken send their requests one after another, in the order in which they
	// wait. For each process before it, a process waits about the time of one request, within these
	// limits. If all sent their requests at once, none would get a majority.
	leastTurn = time.Millisecond
	mostTurn  = 20 * time.Millisecond

	// yieldSpan is the least time for which a process doesn't request a lock again after it has
	// left the lock to other processes.
	yieldSpan = 3 * time.Millisecond
)

// wait takes turns with the other calls of this process, and sends requests until it has the lock.
func (l *Locker) wait(ctx context.Context, name string) (*tenure.Hold, error) {
	p, alone, courtesy := l.lines.join(name)
	defer p.leave()
	select {
	case <-p.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !alone {
		courtesy = p.courtesy()
	}
	if courtesy > 0 {
		pause(ctx, courtesy)
	}
	w := waiting{poll: leastPoll, pause: l.mostPause}
	for first := alone; ; first = false {
		p.asks()
		a := l.attempt(ctx, name, wish{waiter: l.id})
		calls, trouble := p.asked(a)
		switch {
		case a.held != nil:
			return a.held, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(a.err, errTwice), a.err != nil &&
			(first && !a.t.won() || time.Since(trouble) > l.opts.Lease):
			// A first attempt whose votes were won too late goes on, because perhaps this process
			// was stopped.
			return nil, a.err
		case a.t.mine > 0: // these votes would also make the next try fail
			a.clear(ctx)
		}
		l.listen()
		r := w.rest(a, calls, p.turns(a.t.place()))
		timer := time.NewTimer(r.most)
		select {
		case <-p.woken:
			timer.Reset(r.woken)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			w.poll = leastPoll
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// waiting is the state of a call that waits.
type waiting struct {
	poll  time.Duration // the next pause without messages
	pause time.Duration // the pause with messages
	met   int           // how many times in a row other claims asked at the same moment
}

// rest is the time to wait before the next request.
type rest struct {
	most  time.Duration // if no message arrives
	woken time.Duration // after a message that a majority may be free
}

// rest returns the time to wait after a failed attempt. calls reports whether messages will show
// when the lock is free. turn is the time that the requests of the processes before this one take.
func (w *waiting) rest(a attempt, calls bool, turn time.Duration) rest {
	if a.t.mine == 0 && !a.t.split() {
		w.met = 0
	} else {
		// Other calls will be woken at the same moment, or no call will be woken, because the
		// holders of the votes are dead.
		turn += backOff(w.met, a.took)
		w.met++
	}
	most := w.poll/2 + rand.N(w.poll/2)
	switch {
	case a.err == nil && a.t.split(), a.t.won():
		// The votes are split, or they were won too late and given back.
		return rest{turn, turn}
	case calls:
		most = w.pause + turn
	default:
		w.poll = min(2*w.poll, mostPoll)
	}
	if left := a.t.left(); a.err == nil && left >= 0 {
		most = min(most, left+turn)
	}
	return rest{most, turn}
}

// backOff returns the time to wait after other claims asked at the same moment for the nth time in
// a row. took is the time that the request took: two calls that try again within a shorter time
// would meet again.
func backOff(n int, took time.Duration) time.Duration {
	// Limited first, because on a machine that was suspended a request may have taken days.
	span := min(max(leastSpan, 2*took), mostSpan)
	return rand.N(min(span<<min(n, 10), mostSpan))
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
