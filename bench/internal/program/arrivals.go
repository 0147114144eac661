package program

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
)

var _ = known[record](shift{})

// shift issues requests for a key at fixed times, whatever the answers.
type shift struct {
	Key         string
	Start       int64 // nanoseconds since 1970; all processes are on one machine
	Interval    time.Duration
	Warm, Count int
}

// record is the record of a replica's requests. Element k of each slice belongs to the k-th
// request.
type record struct {
	Latency []int64   // nanoseconds from the time at which the request was due
	Kind    []kind    // the kind of the answer
	Made    []version // the version in the answer; 0: no value
	Late    []int64   // nanoseconds by which each arrival was issued late, by the generator itself
	Error   string    // one of the errors
}

// kind is the kind of the answer to a request.
type kind byte

const (
	failed kind = iota
	fresh
	stale // the contender itself reported the value as stale
)

// do asks at each arrival. It doesn't record the requests of the warm-up.
func (s shift) do(ctx context.Context, w *worker) (record, error) {
	r := record{
		Latency: make([]int64, s.Count), Kind: make([]kind, s.Count),
		Made: make([]version, s.Count),
	}
	var failure atomic.Pointer[string]
	runtime.GC() // so that no contender has a collection in the middle of the run

	get := func(ctx context.Context) (string, bool, error) {
		value, _, err := w.Get(ctx, s.Key)
		return value, false, err
	}
	if dated, ok := w.Protection.(contender.Dated); ok {
		get = func(ctx context.Context) (string, bool, error) { return dated.GetDated(ctx, s.Key) }
	}
	a := arrivals{
		Start: time.Unix(0, s.Start), Interval: s.Interval, Warm: s.Warm, Count: s.Count,
		pause: pause,
	}
	r.Late = a.issue(ctx, func(k int, due time.Time) {
		value, old, err := get(ctx)
		took := time.Since(due)
		if k < 0 {
			return
		}
		r.Latency[k] = took.Nanoseconds()
		if err == nil {
			r.Made[k], err = versionOf(value, w.size)
		}
		switch {
		case err != nil:
			text := err.Error()
			failure.Store(&text)
		case old:
			r.Kind[k] = stale
		default:
			r.Kind[k] = fresh
		}
	})
	if text := failure.Load(); text != nil {
		r.Error = *text
	}
	return r, nil
}

// An arrival counts as late if the generator itself issues it later than tooLate after its time.
// Such delays are the machine's noise.
const tooLate = time.Millisecond

// arrivals are the times at which requests arrive. Request k arrives k intervals after Start. k
// goes from -Warm to Count-1.
type arrivals struct {
	Start       time.Time
	Interval    time.Duration
	Warm, Count int
	pause       func(time.Duration)
}

// due returns the time at which the k-th request arrives.
func (a arrivals) due(k int) time.Time { return a.Start.Add(time.Duration(k) * a.Interval) }

// issue calls do at each arrival, on a separate goroutine, whether or not earlier calls have
// returned. It returns when all calls have returned. late is the delay of issue itself, for each
// arrival from 0 on.
func (a arrivals) issue(ctx context.Context, do func(k int, due time.Time)) (late []int64) {
	late = make([]int64, a.Count)
	a.Start = time.Now().Add(time.Until(a.Start)) // from now on by the monotonic clock
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
