// Package budget bounds how many loads run at a time: in this process, where others wait in a
// Queue, and in a whole Fleet.
package budget

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOverloaded says that there is no slot or permit to be had, or none in time.
var ErrOverloaded = errors.New("cacheguard: overloaded")

// Queue is slots, and an orderly queue of those who wait for one. It is safe for concurrent use.
type Queue struct {
	Max  int // slots there are
	Most int // who may wait

	mu      sync.Mutex // guards running and waiting
	running int
	waiting list.List // of chan struct{}, closed when the slot is handed over
}

// Take takes a slot and returns what gives it back, to be called once. It waits no longer than ctx
// and patience, and only if less than that share of the queue is taken; when urged is closed it
// does without a slot.
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
	case <-turn: // handed over in the last moment
		q.mu.Unlock()
		q.release()
	default:
		q.waiting.Remove(place)
		q.mu.Unlock()
	}
	return release, err
}

// Try is Take for somebody who can do without a slot, and perhaps has no load for it: it takes one
// only if it leaves as many free as are taken, and returns nil if not.
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

// release hands the slot to the one who has waited longest.
func (q *Queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.waiting.Front(); first != nil {
		close(q.waiting.Remove(first).(chan struct{}))
		return
	}
	q.running--
}
