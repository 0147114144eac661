package cacheguard

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// sampler says which hits are looked at more closely. Others pay for a look at a flag.
type sampler struct {
	due         atomic.Uint32 // what is to be done with the next hit: its bits are below
	loadsFailed atomic.Int32  // of an audit, in a row
	goes        context.Context
	stop        context.CancelFunc // ends goes; nil if nothing is ever due

	mu     sync.Mutex                // guards what follows
	pauses [samplings]func() float64 // how long they are on average, in seconds; nil: it is never done
	timers [samplings]*time.Timer    // with which they end
}

// What is done with hits.
const (
	forAudit = iota
	forWatcher
	samplings
)

// longestPause is the longest between two audits because loads fail.
const longestPause = time.Minute

// beginSampling has hits be looked at as the options say.
func (c *Cache[V]) beginSampling() {
	s := &c.sampler
	if c.opts.Audit.PerSecond > 0 {
		c.comparisons.times.Begin(mostTimes)
		s.pauses[forAudit] = func() float64 {
			mean := 1 / c.opts.Audit.PerSecond
			if n := s.loadsFailed.Load(); n > 0 {
				mean = max(mean, min(mean*float64(int(1)<<min(n, 16)), longestPause.Seconds()))
			}
			return mean
		}
	}
	if c.watched {
		s.pauses[forWatcher] = func() float64 { return 1. / sampledPerSecond }
	}
	for what, pause := range s.pauses {
		if pause != nil && s.stop == nil {
			s.goes, s.stop = context.WithCancel(context.Background())
		}
		s.next(what)
	}
}

// next begins a pause after which another hit is due, of half to one and a half of the mean length.
func (s *sampler) next(what int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pause := s.pauses[what]; pause != nil && s.goes.Err() == nil {
		d := time.Duration(pause() * (0.5 + rand.Float64()) * float64(time.Second))
		s.timers[what] = time.AfterFunc(d, func() { s.due.Or(1 << what) })
	}
}

// end has no hit be looked at any more, and nobody wait for what is being looked at.
func (s *sampler) end() {
	if s.stop == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	for _, timer := range s.timers {
		if timer != nil {
			timer.Stop()
		}
	}
	s.due.Store(0)
}

// sampled does what is due with a hit of the store, unless another one was faster.
//
//go:noinline
func (c *Cache[V]) sampled(ctx context.Context, key, id string, load loader[V], got *found[V]) {
	if c.sample(ctx, key, got.res) {
		c.auditHit(ctx, key, id, load, got)
	}
}

// sampledLocally is sampled for a hit of the process-local tier, which was answered with what it
// has there.
//
//go:noinline
func (c *Cache[V]) sampledLocally(ctx context.Context, key, id string, load loader[V], e *kept[V], age time.Duration) {
	if c.sample(ctx, key, e.res) {
		c.auditLocal(ctx, key, id, load, e, age)
	}
}

// sample tells of a hit, if that is due, and reports whether it is to be checked.
func (c *Cache[V]) sample(ctx context.Context, key string, res Result[V]) (check bool) {
	due := c.sampler.due.Swap(0)
	for what := range samplings {
		if due&(1<<what) != 0 {
			c.sampler.next(what)
		}
	}
	if due&(1<<forWatcher) != 0 {
		c.observe(ctx, Event{Kind: EventSampled, Key: key, NotFound: res.NotFound, Local: res.Local})
	}
	return due&(1<<forAudit) != 0
}
