package cacheguard

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// Limiter is a budget of loads that run at a time, in this process (NewLimiter) or in the whole fleet
// (NewFleetLimiter). Give one to several caches to protect an origin that they share. A load begun inside a load takes
// no second slot of the same Limiter, so nested loads can't wait for each other. Safe for concurrent use.
type Limiter struct {
	max, queue int
	fleet      *permits // nil for a budget of this process alone

	mu      sync.Mutex // guards running and waiting
	running int
	waiting list.List // of chan struct{}, closed when the slot is handed over
}

// NewLimiter returns a budget of max loads at a time, at least 1, with at most queue more that wait for a slot, in
// order; one more is turned away with ErrOverloaded.
func NewLimiter(max, queue int) *Limiter {
	if max < 1 {
		max = 1
	}
	return &Limiter{max: max, queue: queue}
}

// acquire takes a slot and returns what gives it back, to be called once. It waits no longer than ctx and patience, and
// only if less than that share of the queue is taken; when urged is closed it does without a slot.
func (l *Limiter) acquire(ctx context.Context, patience time.Duration, urged <-chan struct{}, share float64) (release func(), err error) {
	if l == nil || insideLoad(ctx, l) {
		return func() {}, nil
	}
	by := time.Now().Add(patience)
	slot, err := l.local(ctx, patience, urged, share)
	if err != nil || l.fleet == nil {
		return slot, err
	}
	permit, err := l.fleet.take(ctx, time.Until(by), urged)
	if err != nil {
		slot()
		return nil, err
	}
	return func() {
		permit()
		slot()
	}, nil
}

// local takes a slot of this process.
func (l *Limiter) local(ctx context.Context, patience time.Duration, urged <-chan struct{}, share float64) (release func(), err error) {
	l.mu.Lock()
	if l.running < l.max {
		l.running++
		l.mu.Unlock()
		return l.release, nil
	}
	if waiting := l.waiting.Len(); float64(waiting) >= share*float64(l.queue) {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %d loads run and %d wait", ErrOverloaded, l.max, waiting)
	}
	turn := make(chan struct{})
	place := l.waiting.PushBack(turn)
	l.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
		if ctx.Err() == nil {
			return l.release, nil
		}
		err = context.Cause(ctx)
	case <-urged:
		release = func() {}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("%w: no slot for a load within %v", ErrOverloaded, patience)
	}
	l.mu.Lock()
	select {
	case <-turn: // handed over in the last moment
		l.mu.Unlock()
		l.release()
	default:
		l.waiting.Remove(place)
		l.mu.Unlock()
	}
	return release, err
}

// release hands the slot to the one who has waited longest.
func (l *Limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.waiting.Front(); first != nil {
		close(l.waiting.Remove(first).(chan struct{}))
		return
	}
	l.running--
}
