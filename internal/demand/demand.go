// Package demand checks a moment on the store's clock before which a caller accepts no value. The
// moment may have come from anybody.
package demand

import (
	"context"
	"sync"
	"time"
)

const (
	// Slack is how far the processes' estimates of the store's clock may differ.
	Slack = 250 * time.Millisecond

	// ahead is how far a store's clock may fall behind what it has returned before: see
	// cacheguard.Store.
	ahead = 24*time.Hour + time.Second
)

// Clock is the clock of a store.
type Clock interface {
	Now() time.Time                                         // an estimate
	Clock(ctx context.Context, cache string) (int64, error) // asks the clock; in microseconds since 1970
}

// Judge checks the demands of one cache. The zero Judge is ready to use, and safe for concurrent
// use.
type Judge struct {
	mu     sync.Mutex // guards the fields below
	next   *question  // the request that will be sent next, which newcomers may wait for; nil: there is none
	asking bool       // a request has been sent, and its goroutine sends the next one
}

// question is a request for the store's clock. said and err are set before done is closed.
type question struct {
	done chan struct{}
	said int64
	err  error
}

// Check returns the moment that is to be demanded, or 0 if nothing can be demanded because the
// store has not reached the moment yet. If the moment is later than the estimate, it may be
// invented, or come from a clock that was set. So the store is asked, once for all callers that
// wait for that at the same time. Whatever was committed before this call is not later than the
// store's answer, so no more than the answer is demanded. While the store can't answer, the moment
// itself is demanded.
func (j *Judge) Check(ctx context.Context, store Clock, cache string, moment int64) int64 {
	if moment <= 0 {
		return 0
	}
	switch now := store.Now(); {
	case moment <= now.UnixMicro():
		return moment
	case moment > now.Add(ahead).UnixMicro():
		return 0
	}
	said, err := j.ask(ctx, store, cache)
	switch {
	case err != nil:
		return moment
	case moment > said+Slack.Microseconds():
		return 0
	}
	return min(moment, said)
}

// ask returns what the store's clock returned after the beginning of this call.
func (j *Judge) ask(ctx context.Context, store Clock, cache string) (int64, error) {
	j.mu.Lock()
	q := j.next
	if q == nil {
		q = &question{done: make(chan struct{})}
		j.next = q
		if !j.asking {
			j.asking = true
			go j.work(store, cache)
		}
	}
	j.mu.Unlock()
	select {
	case <-q.done:
		return q.said, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// work sends requests, one after another, until nobody waits for the next one. Each request takes
// at most as long as a step of the store.
func (j *Judge) work(store Clock, cache string) {
	for {
		j.mu.Lock()
		q := j.next
		j.next = nil
		j.asking = q != nil
		j.mu.Unlock()
		if q == nil {
			return
		}
		q.said, q.err = store.Clock(context.Background(), cache)
		close(q.done)
	}
}
