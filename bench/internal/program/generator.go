package program

import (
	"context"
	"sync"
	"time"
)

// tooLate is from when on an arrival was issued late by the generator itself, which is the
// machine's noise.
const tooLate = time.Millisecond

// arrivals are the moments at which requests arrive: the k-th one k intervals after Start, from
// -Warm to Count-1.
type arrivals struct {
	Start       time.Time
	Interval    time.Duration
	Warm, Count int
	pause       func(time.Duration)
}

// due is when the k-th request arrives.
func (a arrivals) due(k int) time.Time { return a.Start.Add(time.Duration(k) * a.Interval) }

// issue calls do at each arrival, on a goroutine of its own and whether or not earlier ones have
// returned, and returns when all have. It returns how late it was itself with each arrival from 0
// on.
func (a arrivals) issue(ctx context.Context, do func(k int, due time.Time)) (late []int64) {
	late = make([]int64, a.Count)
	a.Start = time.Now().Add(time.Until(a.Start)) // from here on by the monotonic clock
	var done sync.WaitGroup
	defer done.Wait()
	for k := -a.Warm; k < a.Count && ctx.Err() == nil; k++ {
		due := a.due(k)
		for left := time.Until(due); left > 0; left = time.Until(due) {
			a.pause(left)
		}
		if k >= 0 {
			late[k] = time.Since(due).Nanoseconds()
		}
		done.Go(func() { do(k, due) })
	}
	return late
}
