package middleware

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// turns is a budget of runs whose responses are for their own clients from the start: they neither
// take the slots of loads nor are they without bounds. Handlers that have lost their place to a
// slow client take one of these to go on, see place. A nil one has no bounds. It is safe for
// concurrent use.
type turns struct {
	most     int
	patience time.Duration
	give     func() // release, for places

	mu      sync.Mutex // guards what follows
	running int
	begin   list.List // of chan struct{}, closed when the turn is handed over: who wants to begin, in order
	goOn    list.List // the same: who wants to go on
	resumed bool      // the last turn that was handed over was for one of those
	beyond  time.Time // when a handler last went on without one
}

const (
	passShare   = 4           // the loads of a process for each of these runs
	queueShare  = 64          // and how many wait for each that runs
	beyondAfter = time.Second // see again
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
	t := &turns{most: max(1, most/passShare), patience: patience}
	t.give = t.release // once: a method that is passed along is allocated each time
	return t
}

// take waits for a turn, until ctx ends at most.
func (t *turns) take(ctx context.Context) error {
	in, err := t.queue(&t.begin, queueShare*t.most)
	if err != nil || in == nil {
		return err
	}
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case <-in.Value.(chan struct{}):
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%w: no turn within %v", cacheguard.ErrOverloaded, t.patience)
	}
	if !t.leave(&t.begin, in) { // it was handed over in the last moment
		t.release()
	}
	return err
}

// queue takes a turn, or a place in a queue that has no more than so many.
func (t *turns) queue(q *list.List, most int) (in *list.Element, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running < t.most {
		t.running++
		return nil, nil
	}
	if n := q.Len(); n >= most {
		return nil, fmt.Errorf("%w: %d requests wait that can't be answered from the cache", cacheguard.ErrOverloaded, n)
	}
	return q.PushBack(make(chan struct{})), nil
}

// leave gives up a place in a queue. It is false if the turn has been handed over.
func (t *turns) leave(q *list.List, in *list.Element) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-in.Value.(chan struct{}):
		return false
	default:
		q.Remove(in)
		return true
	}
}

// again takes a turn for a handler that has begun, and reports whether it got one. Such handlers
// and those which want to begin are served by turns: neither a queue of new requests nor a crowd of
// slow clients keeps the other waiting for good.
//
// It doesn't end with the client, or one could have its handler go on uncounted by leaving. But a
// handler may hold what those with a turn wait for: a lock, the last connection to the database. So
// if there is no turn for a second, the one who has waited for longest goes on without, and one in
// each second after that.
func (t *turns) again() bool {
	in, _ := t.queue(&t.goOn, int(^uint(0)>>1))
	if in == nil {
		return true
	}
	timer := time.NewTimer(beyondAfter)
	defer timer.Stop()
	for {
		select {
		case <-in.Value.(chan struct{}):
			return true
		case now := <-timer.C:
			if t.goesBeyond(in, now) {
				return false
			}
			timer.Reset(beyondAfter)
		}
	}
}

func (t *turns) goesBeyond(in *list.Element, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goOn.Front() != in || now.Sub(t.beyond) < beyondAfter {
		return false
	}
	t.beyond = now
	t.goOn.Remove(in)
	return true
}

// release hands a turn over.
func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := &t.goOn
	if q.Len() == 0 || t.resumed && t.begin.Len() > 0 {
		q = &t.begin
	}
	if first := q.Front(); first != nil {
		t.resumed = q == &t.goOn
		close(q.Remove(first).(chan struct{}))
		return
	}
	t.running--
}

// runOf is the context key of what runs for a cache: a request that its handler sends through the
// cache is a part of the same run, and must not wait for a turn that this one has.
type runOf struct{ cache *Cache }

// counted runs the handler for a GET or HEAD in its turn.
func (c *Cache) counted(r *http.Request, serve func(*http.Request, *place)) error {
	if c.turns == nil || !isRead(r.Method) || r.Context().Value(runOf{c}) != nil {
		serve(r, nil)
		return nil
	}
	if err := c.turns.take(r.Context()); err != nil {
		return err
	}
	p := c.turns.place(c.turns.give)
	defer p.leave()
	inside := r.WithContext(context.WithValue(r.Context(), runOf{c}, true))
	if r.Body != nil && r.Body != http.NoBody {
		inside.Body = upload{r.Body, p}
	}
	defer func() { r.Pattern = inside.Pattern }() // of a mux inside, for whoever is outside
	serve(inside, p)
	return nil
}
