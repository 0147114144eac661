package cacheguard

import (
	"bytes"
	"context"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Audit measures how often the answers of a cache are right. After some hits the origin is asked
// again, in the background, with the load function of the call that was answered. The result is
// compared with the answer (Options.Same). A difference is looked at again after a moment, with
// another load, and reported with its cause (see Difference): to observers by EventCompared, in
// numbers by Stats.
//
// With an audit, load functions may be called after their call has returned, as with EarlyRefresh or
// StaleWhileRevalidate. They see no previous value, their result is not stored, and a load of
// GetMany is called for one key. Hits that share a look-up count once. Peek, Cache.Local and stale
// values are not checked, and caches of package middleware have no audit.
type Audit struct {
	// PerSecond is how many hits each process checks per second, on average at most. Each check
	// costs a load, each difference one more. The first hit after a pause of random length is
	// checked, so keys that are hit often are checked often. While loads fail, the pauses grow to a
	// minute. A check takes a slot of MaxLoads or of the Limiter; it is left out if half of the
	// slots are taken in this process, or if it would have to wait. Default 0: none; else from
	// 0.00001 to 1,000.
	PerSecond float64

	// Tolerance is the age up to which a value may differ from the origin and still count as
	// allowed. If your program never invalidates and relies on the TTL, set it to the TTL. Default
	// 0.
	Tolerance time.Duration

	// Settle is how long after it was found a difference is looked at again. By then the cache has
	// usually been told of a change under way. If that takes longer, for instance because an outbox
	// is behind, raise Settle. It applies to ModeShadow, too. Default 1 second; at least 1 ms.
	Settle time.Duration
}

const (
	leastAudited = 1e-5 // one a day, nearly
	mostAudited  = 1000

	mostTimes = 4096 // at which keys were changed
)

func (a *Audit) defaults(bad *complaints) {
	if a.PerSecond != 0 && !(a.PerSecond >= leastAudited && a.PerSecond <= mostAudited) { // also not a number
		bad.add("Audit.PerSecond is %v, it must be 0 or from %v to %d", a.PerSecond, leastAudited, mostAudited)
	}
	bad.duration("Audit.Settle", &a.Settle, time.Second, minTTL, false)
	if a.Tolerance < 0 || a.Tolerance > maxTTL {
		bad.add("Audit.Tolerance is %v, it must be from 0 to %v", a.Tolerance, maxTTL)
	}
}

// auditLocal is auditHit for what the process-local tier has answered with, at that age.
func (c *Cache[V]) auditLocal(ctx context.Context, key, id string, load loader[V], e *kept[V], age time.Duration) {
	c.audit(ctx, key, id, load, func(context.Context) (found[V], bool) { return e.later(age - e.res.Age), true })
}

// auditHit checks what the store has answered with. It is read once more: the answer is its
// caller's.
func (c *Cache[V]) auditHit(ctx context.Context, key, id string, load loader[V], got *found[V]) {
	was := bytes.Clone(got.id)
	c.audit(ctx, key, id, load, func(ctx context.Context) (found[V], bool) {
		now, err := c.read(ctx, c.key(id))
		return now, err == nil && bytes.Equal(now.id, was)
	})
}

// audit asks the origin what it has in place of an answer, and compares.
func (c *Cache[V]) audit(ctx context.Context, key, id string, load loader[V], answer func(context.Context) (found[V], bool)) {
	if l := c.opts.Limiter; l != nil && !l.queue.Spare() || c.life.over.Load() {
		return
	}
	c.compareBehind(ctx, func(ctx context.Context) {
		had, ok := answer(ctx)
		if !ok {
			return
		}
		ask := func() (Result[V], bool) { return c.askOrigin(ctx, key, id, load) }
		if loaded, ok := ask(); ok {
			c.compare(ctx, &comparison[V]{key: key, id: id, had: &had, loaded: loaded, again: ask})
		}
	})
}

// askOrigin loads what the origin has of a key, for nobody, if there is a slot for that and the
// load has a result that is for all.
func (c *Cache[V]) askOrigin(ctx context.Context, key, id string, load loader[V]) (Result[V], bool) {
	m := c.offPath(&target[V]{flight.Solo[outcome[V]](), key, c.key(id), load})
	m.audits = true
	if !c.runBehind(ctx, nil, m) {
		return Result[V]{}, false
	}
	out, err := m.flight.Result(c.sampler.goes)
	switch {
	case err != nil: // it is over with the audit
		return Result[V]{}, false
	case out.err != nil:
		c.sampler.loadsFailed.Add(1)
		return Result[V]{}, false
	}
	c.sampler.loadsFailed.Store(0)
	return out.res, !out.unshared()
}
