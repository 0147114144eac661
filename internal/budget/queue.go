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

// ErrOverloaded means that no slot or permit was free, or that none became free in time.
var ErrOverloaded = errors.New("cacheguard: overloaded")

// Queue is a number of slots, and a queue of callers that wait for a slot. It is safe for
// concurrent use.
type Queue struct {
	Max  int // number of slots
	Most int // largest number of callers that wait

	mu      sync.Mutex // guards running and waiting
	running int
	waiting list.List // of chan struct{}, closed when the slot is given to the waiter
}

// Take takes a slot, and returns a function that returns the slot. Call that function once. Take
// waits no longer than ctx and patience allow. It waits only if the taken share of the queue is
// smaller than share. If urged is closed, Take succeeds without a slot.
func (q *Queue) Take(
	ctx context.Context, patience time.Duration, urged <-chan struct{}, share float64,
) (release func(), err error) {
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

// Try is Take for a caller that can do without a slot, and that may not need the slot later. After
// Try at least as many slots must be free as are taken. Otherwise Try takes no slot and returns
// nil.
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
