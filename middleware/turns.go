package middleware

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// turns is a budget of runs whose responses are for their own clients from the start: they neither take the slots of loads nor
// are they without bounds. A nil one has no bounds. It is safe for concurrent use.
type turns struct {
	slots    chan struct{}
	waiting  atomic.Int64
	patience time.Duration
}

const (
	passShare  = 4  // the loads of a process for each of these runs
	queueShare = 64 // and how many wait for each that runs
)

func newTurns(o Options) *turns {
	most := o.MaxLoads
	switch {
	case most < 0:
		return nil
	case most == 0: // there is a Limiter
		most = defaultMaxLoads
	}
	patience := o.LoadTimeout
	if patience <= 0 {
		patience = defaultLoadTimeout
	}
	return &turns{slots: make(chan struct{}, max(1, most/passShare)), patience: patience}
}

// take waits for a turn, until ctx ends at most, and returns what ends it, which may be called more than once.
func (t *turns) take(ctx context.Context) (end func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	end = sync.OnceFunc(func() { <-t.slots })
	select {
	case t.slots <- struct{}{}:
		return end, nil
	default:
	}
	defer t.waiting.Add(-1)
	if n := t.waiting.Add(1); n > int64(queueShare*cap(t.slots)) {
		return nil, fmt.Errorf("%w: %d requests wait that can't be answered from the cache", cacheguard.ErrOverloaded, n-1)
	}
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case t.slots <- struct{}{}:
		return end, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("%w: no turn within %v", cacheguard.ErrOverloaded, t.patience)
	}
}

// runOf is the context key of what runs for a cache: a request that its handler sends through the cache is a part of the same
// run, and must not wait for a turn that this one has.
type runOf struct{ cache *Cache }

// counted runs the handler for a GET or HEAD in its turn. begun is to be called when the response has begun to leave for the
// client: a run counts until then, so that neither a client that reads slowly nor an event stream has a turn.
func (c *Cache) counted(r *http.Request, serve func(r *http.Request, begun func())) error {
	if !isRead(r.Method) || r.Context().Value(runOf{c}) != nil {
		serve(r, func() {})
		return nil
	}
	end, err := c.turns.take(r.Context())
	if err != nil {
		return err
	}
	defer end()
	inside := r.WithContext(context.WithValue(r.Context(), runOf{c}, true))
	defer func() { r.Pattern = inside.Pattern }() // of a mux inside, for whoever is outside
	serve(inside, end)
	return nil
}
