// Package demand checks the moment of a token: a time on the store's clock before which a caller
// accepts no value. Anybody may have made the token.
package demand

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Clock is the clock of a store.
type Clock interface {
	Now() time.Time // an estimate
	// Asks the clock; in microseconds since 1970.
	Clock(ctx context.Context, cache string) (int64, error)
}

// Judge checks the demands of one cache. The zero Judge is ready to use, and safe for concurrent
// use.
type Judge struct {
	// Go runs a function on a new goroutine, or returns false if the cache is closed. Set it before
	// the first call of Check. nil: the go statement.
	Go func(func()) bool

	mu sync.Mutex // guards the fields below
	// The request that will be sent next; newcomers may wait for it; nil: no next request.
	next   *question
	asking bool // a request has been sent, and its goroutine sends the next one
}

// question is one request for the store's clock, shared by several callers. said and err are set
// before done is closed.
type question struct {
	done chan struct{}
	said int64
	err  error
}

// Check returns the moment that the caller must demand, or 0 if the caller demands nothing. If the
// moment is not later than the estimate of the store's clock, Check returns it. A later moment may
// be invented, or may come from a clock that was set. If it is more than a day ahead
// (protocol.TooFarAhead), Check returns 0. Otherwise Check asks the store, once for all
// simultaneous callers. If the moment is later than the store's answer by more than
// protocol.ClockSlack, Check returns 0, because no value can be that new. If it is later by less,
// Check returns the answer, because changes that were committed before this call are not later than
// the answer. While the store can't answer, Check returns the moment itself.
func (j *Judge) Check(ctx context.Context, store Clock, cache string, moment int64) int64 {
	if moment <= 0 {
		return 0
	}
	switch now := store.Now(); {
	case moment <= now.UnixMicro():
		return moment
	case protocol.TooFarAhead(moment, now):
		return 0
	}
	said, err := j.ask(ctx, store, cache)
	switch {
	case err != nil:
		return moment
	case moment > said+protocol.ClockSlack.Microseconds():
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
			if j.asking = j.begin(func() { j.work(store, cache) }); !j.asking {
				j.next = nil
				j.mu.Unlock()
				return 0, errClosed
			}
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

var errClosed = errors.New("the cache is closed")

func (j *Judge) begin(work func()) bool {
	if j.Go != nil {
		return j.Go(work)
	}
	go work()
	return true
}

// work sends requests one after another, as long as callers wait for a further one. Each request
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
