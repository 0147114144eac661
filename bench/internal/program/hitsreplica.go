package program

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/bench/internal/contender"
	"github.com/cacheguard/cacheguard/internal/simulate"
)

var _ = known[hitAnswer](hitsJob{})

// hitsJob has callers ask for keys that are cached, one call after the other, for a time.
type hitsJob struct {
	Key           string
	Keys, Callers int
	Time          time.Duration
	Many          bool // each call asks for all keys at once
}

// hitAnswer is what one process did with a key that is cached.
type hitAnswer struct {
	Calls    int64
	Took     int64 // nanoseconds, for all of them
	P50, P99 int64 // nanoseconds of one call
}

// shortCall is what a call takes at most that isn't timed each time: looking at the clock would be
// a part of it.
const shortCall = 2 * time.Microsecond

// timed is of how many short calls one is timed.
const timed = 64

func (o hitsJob) do(ctx context.Context, w *worker) (hitAnswer, error) {
	var mu sync.Mutex // guards what follows
	var calls int64
	var took simulate.Histogram
	var problem error
	var all sync.WaitGroup
	gate := make(chan struct{})
	end := make(chan struct{})
	for i := range o.Callers {
		all.Go(func() {
			<-gate
			n, one, err := hitUntil(o.hit(ctx, w, i), end)
			mu.Lock()
			defer mu.Unlock()
			calls += n
			for _, t := range one {
				took.Add(t, 1)
			}
			if err != nil {
				problem = err
			}
		})
	}
	began := time.Now()
	close(gate)
	timer := time.NewTimer(o.Time)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	close(end)
	all.Wait()
	return hitAnswer{Calls: calls, Took: time.Since(began).Nanoseconds(), P50: took.Quantile(0.5), P99: took.Quantile(0.99)}, problem
}

// hitUntil asks until the end, and returns how often it did and what some of the calls took.
func hitUntil(hit func() error, end <-chan struct{}) (n int64, took []int64, err error) {
	every := int64(1)
	for {
		if n%every == 0 {
			select {
			case <-end:
				return n, took, nil
			default:
			}
			began := time.Now()
			if err := hit(); err != nil {
				return n, took, err
			}
			one := time.Since(began)
			took = append(took, one.Nanoseconds())
			if every == 1 && one < shortCall {
				every = timed
			}
		} else if err := hit(); err != nil {
			return n, took, err
		}
		n++
	}
}

// hit is one call of the i-th caller.
func (o hitsJob) hit(ctx context.Context, w *worker, i int) func() error {
	if !o.Many {
		key := keyOf(o.Key, o.Keys, i)
		return func() error {
			value, found, err := w.Get(ctx, key)
			if err == nil && (!found || len(value) != w.size) {
				err = fmt.Errorf("got a wrong value of %d bytes", len(value))
			}
			return err
		}
	}
	keys := make([]string, o.Keys)
	for i := range keys {
		keys[i] = keyOf(o.Key, o.Keys, i)
	}
	return func() error {
		many, ok := w.Protection.(contender.Many)
		if !ok {
			return errors.New("it has no call for many keys")
		}
		got, err := many.GetMany(ctx, keys)
		for _, key := range keys {
			if err == nil && len(got[key]) != w.size {
				err = fmt.Errorf("got a wrong value of %d bytes", len(got[key]))
			}
		}
		return err
	}
}
