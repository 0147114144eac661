package cacheguard

import (
	"bytes"
	"context"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// Audit measures how often the answers of a cache are right. After some hits it loads the value
// again in the background, with the load function of the answered call, and compares the result
// with the answer (Options.Same). If they differ, the audit compares again after the time Settle,
// with another load. Then it reports the difference and its cause (see [Difference]). Observers get
// EventCompared; [Stats] has the numbers.
//
// With an audit, a load function may run after the call to which it was passed has returned, as
// with EarlyRefresh or StaleWhileRevalidate. A load for an audit sees no previous value, and its
// result is not stored. An audit calls a load of GetMany for one key. The audit treats hits that
// share a look-up as one hit. Answers of Peek and Cache.Local, and stale values, are not checked.
// Caches of package middleware have no audit.
type Audit struct {
	// PerSecond is how many hits per second each process checks on average, at most. Each check
	// costs one load, and a second one if there is a difference. After a pause of random length the
	// next hit is checked. So keys that are hit often are checked often. While loads fail, pauses
	// of less than a minute grow, up to a minute on average. A check takes a slot of MaxLoads or of
	// the Limiter. It is skipped if half of the slots are taken in this process, or if no slot is
	// free. Default 0: no hits are checked. Otherwise from 0.00001 to 1,000.
	PerSecond float64

	// Tolerance is the age up to which a value may differ from the origin. Such a difference is
	// reported as allowed. If your program never invalidates and relies on the TTL, set it to the
	// TTL. Default 0.
	Tolerance time.Duration

	// Settle is how long the audit waits before it checks a difference again. By then the cache has
	// usually received a change that was under way. If your changes take longer to arrive, for
	// instance because an outbox is behind, raise Settle. Settle also applies to ModeShadow.
	// Default 1 second; at least 1 ms.
	Settle time.Duration
}

const (
	leastAudited = 1e-5 // nearly one per day
	mostAudited  = 1000

	// The largest number of keys and tags for which the time of the last change is remembered.
	mostTimes = 4096
)

func (a *Audit) defaults(bad *complaints) {
	// Also rejects NaN.
	if a.PerSecond != 0 && !(a.PerSecond >= leastAudited && a.PerSecond <= mostAudited) {
		bad.add("Audit.PerSecond is %v, it must be 0 or from %v to %d", a.PerSecond, leastAudited,
			mostAudited)
	}
	bad.duration("Audit.Settle", &a.Settle, time.Second, minTTL, false)
	if a.Tolerance < 0 || a.Tolerance > maxTTL {
		bad.add("Audit.Tolerance is %v, it must be from 0 to %v", a.Tolerance, maxTTL)
	}
}

// auditLocal is auditHit for an answer of the process-local tier. age is the value's age in that
// answer.
func (c *Cache[V]) auditLocal(
	ctx context.Context, key, id string, load loader[V], e *kept[V], age time.Duration,
) {
	c.audit(ctx, key, id, load, func(context.Context) (found[V], bool) {
		return e.later(age - e.res.Age), true
	})
}

// auditHit checks a value of the store. It reads the value once more, because the caller may change
// the value that it got.
func (c *Cache[V]) auditHit(ctx context.Context, key, id string, load loader[V], got *found[V]) {
	was := bytes.Clone(got.id)
	c.audit(ctx, key, id, load, func(ctx context.Context) (found[V], bool) {
		now, _, err := c.read(ctx, c.key(id))
		return now, err == nil && bytes.Equal(now.id, was)
	})
}

// audit loads the key from the origin, and compares the result with the answer. If the loads of
// callers need the slots, audit does nothing.
func (c *Cache[V]) audit(
	ctx context.Context, key, id string, load loader[V],
	answer func(context.Context) (found[V], bool),
) {
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

// askOrigin loads a key for an audit. ok is false if no slot is free, if the load fails, if its
// result is not for all callers, or if the cache is being closed.
func (c *Cache[V]) askOrigin(
	ctx context.Context, key, id string, load loader[V],
) (Result[V], bool) {
	m := c.offPath(&target[V]{flight.Solo[outcome[V]](), key, c.key(id), load})
	m.audits = true
	if !c.runBehind(ctx, nil, m) {
		return Result[V]{}, false
	}
	out, err := m.flight.Result(c.sampler.goes)
	switch {
	case err != nil: // the cache is being closed
		return Result[V]{}, false
	case out.err != nil:
		c.sampler.loadsFailed.Add(1)
		return Result[V]{}, false
	}
	c.sampler.loadsFailed.Store(0)
	return out.res, !out.unshared()
}
