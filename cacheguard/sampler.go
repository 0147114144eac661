package cacheguard

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// sampler picks hits for audits and Watchers. A hit that is not picked costs only one read of the
// flag due.
type sampler struct {
	due atomic.Uint32 // the uses of the next hit, as bits: forAudit, forWatcher
	// How many audits in a row got nothing from their load: it failed, or no slot was free.
	loadsFailed atomic.Int32
	goes        context.Context
	stop        context.CancelFunc // ends goes; nil if no hit is ever picked

	mu sync.Mutex // guards pauses and timers
	// Each function returns the average length of the pauses of one sampling, in seconds; nil: no
	// sampling.
	pauses [samplings]func() float64
	timers [samplings]*time.Timer // the timers that end the pauses
}

// The uses of a hit.
const (
	forAudit = iota
	forWatcher
	samplings
)

// longestPause limits the average pause between audits while loads fail, unless PerSecond makes the
// pause longer.
const longestPause = time.Minute

// beginSampling starts the pauses for the samplings that the options ask for.
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

// next begins the pause after which the next hit is picked. The length of the pause is random, from
// half to one and a half times the mean.
func (s *sampler) next(what int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pause := s.pauses[what]; pause != nil && s.goes.Err() == nil {
		d := time.Duration(pause() * (0.5 + rand.Float64()) * float64(time.Second))
		s.timers[what] = time.AfterFunc(d, func() { s.due.Or(1 << what) })
	}
}

// end stops the sampling. Audits that are running no longer wait for their loads.
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

// sampled reports or audits a hit of the store if this is due. If another hit was faster, sampled
// does nothing.
//
//go:noinline
func (c *Cache[V]) sampled(ctx context.Context, key, id string, load loader[V], got *found[V]) {
	if c.sample(ctx, key, got.res) {
		c.auditHit(ctx, key, id, load, got)
	}
}

// sampledLocally is sampled for a hit of the process-local tier, with the tier's entry.
//
//go:noinline
func (c *Cache[V]) sampledLocally(
	ctx context.Context, key, id string, load loader[V], e *kept[V], age time.Duration,
) {
	if c.sample(ctx, key, e.res) {
		c.auditLocal(ctx, key, id, load, e, age)
	}
}

// sample reports a hit to the Watcher, if an event is due. It returns true if an audit must check
// the hit.
func (c *Cache[V]) sample(ctx context.Context, key string, res Result[V]) (check bool) {
	due := c.sampler.due.Swap(0)
	for what := range samplings {
		if due&(1<<what) != 0 {
			c.sampler.next(what)
		}
	}
	if due&(1<<forWatcher) != 0 {
		c.observe(ctx,
			Event{Kind: EventSampled, Key: key, NotFound: res.NotFound, Local: res.Local})
	}
	return due&(1<<forAudit) != 0
}
