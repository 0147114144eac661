// Package demand judges what a caller demands of the age of what it reads: a moment on the store's
// clock, which may have come from anybody.
package demand

import (
	"context"
	"sync"
	"time"
)

const (
	// Slack is how far processes' estimates of the store's clock may be apart.
	Slack = 250 * time.Millisecond

	// ahead is how far a store's clock may be behind what it has said before: see cacheguard.Store.
	ahead = 24*time.Hour + time.Second
)

// Clock is a store's.
type Clock interface {
	Now() time.Time                                         // an estimate
	Clock(ctx context.Context, cache string) (int64, error) // what it says, in microseconds since 1970
}

// Judge judges the demands of one cache. The zero Judge is ready; it is safe for concurrent use.
type Judge struct {
	mu     sync.Mutex // guards what follows
	next   *question  // that will be asked, which newcomers may wait for; nil: there is none
	asking bool       // one has been asked, and its goroutine asks the next one
}

// question is what the store's clock says. said and err are set when done is closed.
type question struct {
	done chan struct{}
	said int64
	err  error
}

// Check returns what is demanded by the moment; 0: nothing, for the store has not said so yet. A
// moment that is later than the estimate may be somebody's invention, or of a clock that was set,
// so the store is asked: once for all who wait for that at the same time. Nothing that was
// committed before this call is later than what the store says then, so no more than that is
// demanded. While the store can't answer, the moment counts.
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

// ask returns what the store's clock said after this call.
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

// work asks questions, one after the other, until nobody waits for the next one. Each takes as long
// as a step of the store does at most.
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
