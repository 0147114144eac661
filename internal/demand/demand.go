// Package demand checks the moment of a token: a time on the store's clock before which a caller
// accepts no value. Anybody may have made the token.
package demand

import (
	"context"
	"sync"
	"time"
)

const (
	// Slack is the largest difference between the processes' estimates of the store's clock.
	Slack = 250 * time.Millisecond

	// ahead is the largest time by which a store's clock may be behind a time that it has returned
	// before. See cacheguard.Store.
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
	next   *question  // the request that will be sent next; newcomers may wait for it; nil: no next request
	asking bool       // a request has been sent, and its goroutine sends the next one
}

// question is a request for the store's clock. said and err are set before done is closed.
type question struct {
	done chan struct{}
	said int64
	err  error
}

// Check returns the moment that the caller must demand. If the store has not reached the moment
// yet, nothing can be demanded, and Check returns 0. If the moment is later than the estimate of
// the store's clock, it may be invented, or may come from a clock that was set. In this case Check
// asks the store, once for all callers that ask at the same time. Changes that were committed
// before this call are not later than the store's answer, so Check returns at most the answer.
// While the store can't answer, Check returns the moment itself.
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

// ask returns a time that the store's clock has returned after the beginning of this call.
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

// work sends requests, one after another, until no caller waits for the next one. Each request
// takes at most as long as a step of the store.
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
