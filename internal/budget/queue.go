// Package budget limits how many loads run at a time: in this process with a [Queue], and in a
// whole fleet with a [Fleet].
package budget

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOverloaded says that no slot or permit was free, or none in time.
var ErrOverloaded = errors.New("cacheguard: overloaded")

// Queue is a number of slots, and a queue of callers that wait for a slot. It is safe for
// concurrent use.
type Queue struct {
	Max  int // number of slots
	Most int // most callers that wait

	mu      sync.Mutex // guards running and waiting
	running int
	waiting list.List // of chan struct{}, closed when the slot is given to the waiter
}

// Take takes a slot, and returns a function that returns it, to be called once. It waits no longer
// than ctx and patience allow. It waits only if a smaller share of the queue is taken than share
// says. If urged is closed, it succeeds without a slot.
func (q *Queue) Take(ctx context.Context, patience time.Duration, urged <-chan struct{}, share float64) (release func(), err error) {
	q.mu.Lock()
	if q.running < q.Max {
		q.running++
		q.mu.Unlock()
		return q.release, nil
	}
	if waiting := q.waiting.Len(); float64(waiting) >= share*float64(q.Most) {
		q.mu.Unlock()
		return nil, fmt.Errorf("%w: %d loads run and %d wait", ErrOverloaded, q.Max, waiting)
	}
	turn := make(chan struct{})
	place := q.waiting.PushBack(turn)
	q.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
		if ctx.Err() == nil {
			return q.release, nil
		}
		err = context.Cause(ctx)
	case <-urged:
		release = func() {}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("%w: no slot for a load within %v", ErrOverloaded, patience)
	}
	q.mu.Lock()
	select {
	case <-turn: // the slot was given at the last moment
		q.mu.Unlock()
		q.release()
	default:
		q.waiting.Remove(place)
		q.mu.Unlock()
	}
	return release, err
}

// Try is Take for a caller that can do without a slot and may not need one in the end. It takes a
// slot only if at least as many slots stay free as are taken, and returns nil otherwise.
func (q *Queue) Try() (release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if 2*(q.running+1) > q.Max {
		return nil
	}
	q.running++
	return q.release
}

// Spare reports whether less than half of the slots are taken.
func (q *Queue) Spare() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return 2*q.running < q.Max
}

// release gives the slot to the caller that has waited longest.
func (q *Queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.waiting.Front(); first != nil {
		close(q.waiting.Remove(first).(chan struct{}))
		return
	}
	q.running--
}
