package cacheguard

import (
	"context"
	"sync"
	"time"
)

// mates are the flights of one call of GetMany that wait for loads elsewhere. Those that have to go on by themselves after
// all, because the one they waited for has ended, died or kept its result to itself, do so together: otherwise a batch that
// waits for a process which goes away would become as many loads as it has keys.
type mates[V any] struct {
	cache *Cache[V]
	load  func(ctx context.Context, missing []string) (map[string]V, error)
	ctx   context.Context // its values are those of the caller

	mu        sync.Mutex // guards what follows
	away      int        // flights that wait
	back      []*pursuit[V]
	gathering bool
}

// What makes one flight go on makes many, one after another: it is waited until for a moment none has come.
const (
	gatherPause = 5 * time.Millisecond
	gatherMost  = 50 * time.Millisecond
)

// leave notes that one more flight waits for a load elsewhere.
func (m *mates[V]) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away++
}

// arrive notes that a flight has landed.
func (m *mates[V]) arrive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away--
}

// comeBack has the flight go on with those that come back, too. The pursuit is over: another one takes its place.
func (m *mates[V]) comeBack(p *pursuit[V]) {
	p.handed = true
	q := &pursuit[V]{
		flight: p.flight, name: p.name, key: p.key, load: p.load, mates: m,
		seen: p.seen, prev: p.prev, tags: p.tags, good: p.good, at: p.at, until: p.until, reads: p.reads, behind: p.behind,
		storeErr: p.storeErr, failures: p.failures, restarts: p.restarts, awaited: p.awaited, since: p.since, apart: p.apart,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away--
	m.back = append(m.back, q)
	if !m.gathering {
		m.gathering = true
		if !m.cache.life.begin() {
			for _, q := range m.take() {
				q.land(Result[V]{}, ErrClosed)
			}
			return
		}
		go m.gather()
	}
}

// take returns who has come back; mu is held.
func (m *mates[V]) take() []*pursuit[V] {
	back := m.back
	m.back, m.gathering = nil, false
	return back
}

// gather waits for those who come back at the same time, and pursues them as a group.
func (m *mates[V]) gather() {
	began, came := time.Now(), 0
	for {
		m.mu.Lock()
		if n := len(m.back); m.away == 0 || n == came || time.Since(began) >= gatherMost {
			back := m.take()
			m.mu.Unlock()
			m.group(back)()
			return
		}
		came = len(m.back)
		m.mu.Unlock()
		m.cache.life.sleep(gatherPause) // or until Close
	}
}

// group makes a group of these flights, whose callers may wait from now on, and returns what pursues it and ends what
// life.begin began.
func (m *mates[V]) group(ps []*pursuit[V]) (pursue func()) {
	c := m.cache
	work, cancel := context.WithCancelCause(context.WithoutCancel(m.ctx))
	g := &group[V]{cache: c, mates: m, load: m.load, cancel: func() { cancel(errAbandoned) }, urged: make(chan struct{})}
	for _, p := range ps {
		g.add(p)
	}
	return func() {
		defer c.life.end()
		defer cancel(nil)
		defer g.landAll(errGoexit) // only if the user's code in here ended the goroutine
		defer c.life.cancelOnClose(cancel)()
		g.pursue(work)
	}
}
