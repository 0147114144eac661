package cacheguard

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// follow waits for a load in another process, or in this one, until the first of: a message about the key, the end of
// the lease, messages that may have been lost, the deadline, everybody's leaving. It reports whether it landed the
// flight; if not, the caller looks again.
func (c *Cache[V]) follow(ctx context.Context, p *pursuit[V], w *watcher, held LeaseAnswer) bool {
	began := time.Now()
	var took time.Duration // without a load of this process that may come of it
	p.heard = nil
	defer func() { c.observe(ctx, Event{Kind: EventWaited, Key: p.name, Took: took, Note: p.heard}) }()
	p.awaited = held.Holder
	timer := time.NewTimer(c.patience(held.Remaining, w))
	defer timer.Stop()
	select {
	case m := <-w.messages:
		took = time.Since(began)
		if m.Kind == MessageChanged {
			p.restarts++
			return false
		}
		if m.Load != held.Holder {
			return false // about a load this flight was not told to wait for: only a reason to look again
		}
		return c.landMessage(ctx, p, m)
	case <-timer.C:
		took = time.Since(began)
		return false
	case <-ctx.Done():
		took = time.Since(began)
		p.land(Result[V]{}, context.Cause(ctx))
		return true
	}
}

// landMessage takes the outcome of the very load that was waited for.
func (c *Cache[V]) landMessage(ctx context.Context, p *pursuit[V], m Message) bool {
	switch m.Kind {
	case MessageFilled:
		ctx := context.WithoutCancel(ctx)
		var got found[V]
		var err error
		if m.Frame == nil { // too large for a message: one read for the whole process
			moment := flight.Tick()
			if got, err = c.read(ctx, p.key); got.good == useFresh { // else it may be marked, and lands as what was waited for
				p.asOf = moment
			}
		} else {
			got, err = c.openTold(ctx, m.Frame)
		}
		if err != nil {
			return false // asking for the lease will say the same, and what to do
		}
		return c.landFound(ctx, p, got, m.Load)
	case MessageOutcome:
		return c.landOutcome(ctx, p, m.Load, m.Outcome, c.openTold)
	}
	return false // released: somebody has to load
}

// patience is how long to wait for a message: to the end of the lease and a little, so that not everybody asks at
// once; without messages, ask from time to time.
func (c *Cache[V]) patience(remaining time.Duration, w *watcher) time.Duration {
	wait := remaining + time.Millisecond + rand.N(8*time.Millisecond)
	if c.store.Listening() {
		w.poll = 0
		return wait
	}
	w.poll = min(max(2*w.poll, 25*time.Millisecond), time.Second)
	return min(wait, w.poll+rand.N(w.poll/4))
}

// waits has the watchers of every key that a flight of this process waits for.
type waits struct {
	mu    sync.Mutex // guards byKey
	byKey map[string][]*watcher
}

// watcher is told of the messages about one key.
type watcher struct {
	of       *waits
	key      string
	messages chan Message
	poll     time.Duration // the last pause while there are no messages
}

// watch begins to listen for a key; the caller calls stop.
func (ws *waits) watch(key string) *watcher {
	w := &watcher{of: ws, key: key, messages: make(chan Message, 8)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byKey == nil {
		ws.byKey = make(map[string][]*watcher)
	}
	ws.byKey[key] = append(ws.byKey[key], w)
	return w
}

func (w *watcher) stop() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	all := w.of.byKey[w.key]
	for i := range all {
		if all[i] == w {
			all[i] = all[len(all)-1]
			all[len(all)-1] = nil
			all = all[:len(all)-1]
			break
		}
	}
	if len(all) == 0 {
		delete(w.of.byKey, w.key)
	} else {
		w.of.byKey[w.key] = all
	}
}

// drain forgets messages from before a question: its answer is newer.
func (w *watcher) drain() {
	for {
		select {
		case <-w.messages:
		default:
			return
		}
	}
}

// tell never blocks. A watcher with a full channel has enough reasons to look again.
func (ws *waits) tell(m Message) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byKey[m.Key] {
		select {
		case w.messages <- m:
		default:
		}
	}
}

func (ws *waits) tellAll(m Message) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, all := range ws.byKey {
		for _, w := range all {
			select {
			case w.messages <- m:
			default:
			}
		}
	}
}
