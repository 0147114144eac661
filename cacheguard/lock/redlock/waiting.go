package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cacheguard/cacheguard/internal/tenure"
)

const (
	// mostTries is how often TryLock asks again when the votes are split. Each time others are less
	// likely to ask at the same moment.
	mostTries = 8

	// Those whose votes were split ask again after a random part of a span, which doubles each
	// time.
	leastSpan = 2 * time.Millisecond
	mostSpan  = 128 * time.Millisecond

	// Who waits for a lock that is held, and doesn't get messages from a majority, asks again after
	// a pause that doubles.
	leastPoll = 5 * time.Millisecond
	mostPoll  = 100 * time.Millisecond

	// Who does get messages asks again after this, in case one was lost.
	mostPause = time.Second

	// Those who are woken ask one after another, in the order in which they wait: later by about
	// the time that a question takes, in these limits, for each that is before. If all asked at
	// once none would get a majority.
	leastTurn = time.Millisecond
	mostTurn  = 20 * time.Millisecond

	// yieldSpan is for how long a process doesn't ask for a lock after it gave it to others.
	yieldSpan = 3 * time.Millisecond
)

// wait asks in turn with the others of this process, until it has the lock.
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
	w := waiting{poll: leastPoll}
	for first := alone; ; first = false {
		p.asks()
		a := l.attempt(ctx, name, wish{waiter: l.id})
		calls, trouble := p.asked(a)
		switch {
		case a.held != nil:
			return a.held, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(a.err, errTwice), a.err != nil && (first && !a.t.won() || time.Since(trouble) > l.opts.Lease): // it may be this process that stood still
			return nil, a.err
		case a.t.mine > 0: // in the way of the next try, too
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

// waiting is how it has gone so far for one who waits.
type waiting struct {
	poll time.Duration // the next pause without messages
	met  int           // how often in a row others asked at the same moment
}

// rest is how long to wait before the next question.
type rest struct {
	most  time.Duration // if nothing is heard
	woken time.Duration // after it is heard that a majority may be free
}

// rest decides what an attempt that has failed is followed by. calls says that messages will tell
// when the lock is free; turn is for how long those ask then that are before.
func (w *waiting) rest(a attempt, calls bool, turn time.Duration) rest {
	if a.t.mine == 0 && !a.t.split() {
		w.met = 0
	} else { // they will be woken at the same moment, too, or nobody at all, if those who have the votes are dead
		turn += backOff(w.met, a.took)
		w.met++
	}
	most := w.poll/2 + rand.N(w.poll/2)
	switch {
	case a.err == nil && a.t.split(), a.t.won(): // the latter came too late, and is given back
		return rest{turn, turn}
	case calls:
		most = mostPause + turn
	default:
		w.poll = min(2*w.poll, mostPoll)
	}
	if left := a.t.left(); a.err == nil && left >= 0 {
		most = min(most, left+turn)
	}
	return rest{most, turn}
}

// backOff is how long to wait after the nth time in a row that one met others who ask. took is how
// long the question took: those who ask again within less would meet again.
func backOff(n int, took time.Duration) time.Duration {
	span := min(max(leastSpan, 2*took), mostSpan) // at first: a question may have taken days, on a machine that slept
	return rand.N(min(span<<min(n, 10), mostSpan))
}

// pause lets time pass, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
