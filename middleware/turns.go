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

// turns limits how many handlers run at a time for requests that can't be answered from the cache.
// It is known from the start that their responses are only for their own clients. These runs have
// separate slots, called turns, and don't use the slots of loads. A handler that has lost its place
// because of a slow client takes a turn before it continues: see place. A nil turns has no limit. A
// turns is safe for concurrent use.
type turns struct {
	most     int
	patience time.Duration
	give     func() // release, for places

	mu      sync.Mutex // guards the fields below
	running int
	begin   list.List // runs that want to begin: a chan struct{} each, closed when it gets a turn
	goOn    list.List // the handlers that want to continue, in the same form
	resumed bool      // the last turn was handed to a handler in goOn
	beyond  time.Time // when a handler last continued without a turn
}

const (
	passShare   = 4           // how many slots of MaxLoads there are for one turn
	queueShare  = 64          // how many runs may wait for each turn
	beyondAfter = time.Second // the wait after which a handler may go on without a turn: see again
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
	t.give = t.release // made once, because each use of a method as a value allocates
	return t
}

// take waits for a turn, but not longer than ctx and the time patience allow.
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
		err = fmt.Errorf(
			"%w: no slot within %v for a request that can't be answered from the cache",
			cacheguard.ErrOverloaded, t.patience)
	}
	if !t.leave(&t.begin, in) { // the turn was handed over at the last moment
		t.release()
	}
	return err
}

// queue takes a turn if one is free. Otherwise it adds an entry to the queue q, and fails if q
// already has most entries.
func (t *turns) queue(q *list.List, most int) (in *list.Element, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running < t.most {
		t.running++
		return nil, nil
	}
	if n := q.Len(); n >= most {
		return nil,
			fmt.Errorf("%w: %d requests wait that can't be answered from the cache",
				cacheguard.ErrOverloaded, n)
	}
	return q.PushBack(make(chan struct{})), nil
}

// leave removes an entry from a queue. It returns false if the entry has already got a turn.
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

// again takes a turn for a handler that has begun before, and reports whether it got one. Free
// turns go alternately to handlers that continue and to handlers that begin. So a queue of new
// requests can't make handlers with slow clients wait for ever, and these handlers can't make new
// requests wait for ever.
//
// The wait doesn't end when the client leaves. Otherwise the handler of a client that leaves would
// continue without a turn. But the handler may hold a lock, or the last connection to the database,
// for which handlers with a turn wait. So if there is no turn for a second, the handler that has
// waited longest continues without a turn. After that one more handler continues in each second.
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

// release hands a turn to the next in the queues, or frees it if nobody waits.
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

// runOf is a context key. A cache sets it in the context of each handler whose run may occupy a
// slot of MaxLoads or a turn. A request that this handler sends through the same cache, with this
// context, is part of the same run. It must not wait for a turn, because the run may hold the last
// turn.
type runOf struct{ cache *Cache }

// counted runs the handler. For a GET or HEAD it first waits for a turn, unless the cache has no
// limit or the request is part of a run of this cache (see runOf). If it gets no turn, it returns
// an error and doesn't run the handler.
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
	// A mux behind the cache sets Pattern, and layers in front read it.
	defer func() { r.Pattern = inside.Pattern }()
	serve(inside, p)
	return nil
}
