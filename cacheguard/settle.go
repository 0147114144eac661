package cacheguard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// release gives up a lease.
func (r *run[V]) release(m *miss[V]) {
	c, token := r.cache, m.asked.token // a copy, because the miss may ask again with a new token before the release has reached the store
	c.settle(func(ctx context.Context) error { return c.store.Release(ctx, m.key, token) })
}

// fill stores the results of a load.
func (r *run[V]) fill(all []*miss[V]) {
	fills := make([]FillAsk, len(all))
	for i, m := range all {
		frame.Seal(m.own.out.frame, m.own.header)
		fills[i] = FillAsk{Key: m.key, Grant: m.ans.Grant, Frame: m.own.out.frame, TTL: m.own.header.Hard() + m.own.out.entry.Keep}
	}
	var replies []Reply[FillAnswer]
	if f := fills[0]; len(fills) == 1 {
		replies = only(r.cache.store.Fill(r.values, f.Key, f.Grant, f.Frame, f.TTL))
	} else {
		replies = complete(r.cache.store.FillMany(r.values, fills), len(fills))
	}
	for i, reply := range replies {
		r.filled(all[i], reply.Answer, reply.Err)
	}
}

// filled handles the answer to a fill.
func (r *run[V]) filled(m *miss[V], ans FillAnswer, err error) {
	c, h, out := r.cache, m.own.header, &m.own.out
	if m.Claims { // a write has no events; Update returns what happened
		m.own.stored = err == nil && ans == FillStored
		r.step(m, protocol.Event{Kind: protocol.Stored})
		return
	}
	res := out.result()
	res.stamp = h.Stamp
	e := protocol.Event{Kind: protocol.Stored}
	switch {
	case err != nil:
		c.tier.values.Drop(m.key.Key)
		c.down(r.ctx, &c.storing, m.name, err)
		c.observe(r.ctx, Event{Kind: EventFillUnknown, Key: m.name, Err: err})
		res.Degraded = true
		e.Kind = protocol.Unsure
	case ans == FillStored:
		c.observe(r.ctx, Event{Kind: EventFilled, Key: m.name})
		c.up(r.ctx, &c.storing)
		if h.Unshared {
			c.tier.values.Drop(m.key.Key)
			break
		}
		res = res.later(max(c.store.Now().Sub(h.Created), 0)) // the value has aged during the fill
		res.FreshFor += h.Soft
		c.doubtLifetime(r.ctx, out.took, h.Soft)
		c.presence.Of(m.key.Key).Stands(h.Hard() - res.Age)
		c.tier.replace(m.key.Key, m.asked.tier, found[V]{
			res: res, good: protocol.Fresh, keeps: h.Hard() - res.Age,
			made: made{id: frame.ID(out.frame), load: ID(h.ID), took: h.Took, tags: out.tags, stamp: h.Stamp},
		})
	default: // refused: only callers that already wait get the result
		c.observe(r.ctx, Event{Kind: EventFillRefused, Key: m.name})
	}
	m.own.res = res
	r.step(m, e)
}

// conclude tells the store the reason why there is no value. The store sends the reason to all
// processes that wait.
func (r *run[V]) conclude(m *miss[V]) {
	c := r.cache
	o, backoff := Outcome{}, time.Duration(0)
	if m.State == protocol.Failing {
		m.own.res.Status = StatusLoaded
		o, backoff = c.outcomeOfFailure(m)
	} else {
		o = c.notStored(r.ctx, m)
	}
	c.settle(func(ctx context.Context) error { return c.sendOutcome(ctx, m, o, backoff) })
}

// outcomeOfFailure returns the outcome of a load that has failed, and the time during which no
// process repeats the load. It also remembers the error value in this process.
func (c *Cache[V]) outcomeOfFailure(m *miss[V]) (o Outcome, backoff time.Duration) {
	err, failures := m.own.out.err, m.ans.Failures+1
	backoff = c.opts.backoff(failures, time.Until(m.until()))
	c.failures.Remember(m.key.Key, m.asked.token, err, c.opts.remembered(backoff), backoff, grace(backoff))
	c.pause(m, backoff+grace(backoff), err)
	return Outcome{Kind: OutcomeFailed, Text: c.errorText(err), Note: m.note, Failures: failures}, backoff
}

// notStored returns the outcome of a load whose result is not stored.
func (c *Cache[V]) notStored(ctx context.Context, m *miss[V]) Outcome {
	m.own.res = m.own.out.result()
	switch e := &m.own.out.entry; {
	case e.NoShare && e.LeaveStored:
		return Outcome{Kind: OutcomeUnshared, Note: m.note}
	case !e.NoShare:
		c.observe(ctx, Event{Kind: EventNotStored, Key: m.name, Err: m.own.out.keepErr})
	}
	c.tier.values.Drop(m.key.Key) // the old value is out of date
	return c.unstored(m)
}

// unstored returns the outcome of a load whose result is not in the store. A small result is a part
// of the outcome. If the result is large, callers of other processes load for themselves, in
// parallel. The stored value is removed, because it is out of date.
func (c *Cache[V]) unstored(m *miss[V]) Outcome {
	out, h := &m.own.out, m.own.header
	if out.entry.NoShare || out.frame == nil || len(out.frame) > frame.MaxCarried {
		return Outcome{Kind: OutcomeUnshared, Note: m.note, Drop: m.had.id != nil}
	}
	h.Created, h.Soft, h.Revalidate, h.IfError = c.store.Now(), minTTL, 0, 0
	f := slices.Clone(out.frame)
	frame.Seal(f, h)
	return Outcome{Kind: OutcomeUnstored, Frame: f, Drop: m.had.id != nil}
}

// sendOutcome ends the lease of a load that leaves no value. It also stores the outcome for
// processes that ask later.
func (c *Cache[V]) sendOutcome(ctx context.Context, m *miss[V], o Outcome, backoff time.Duration) error {
	return c.store.Conclude(ctx, m.key, m.ans.Grant, o, c.opts.recorded(backoff), backoff)
}

// storable reports whether a result with this header should and can be stored.
func (out loaded[V]) storable(h frame.Header) bool {
	return (!out.entry.NoShare || h.Unshared) && out.keepErr == nil && h.Soft > 0
}

// header makes the header of a result's frame. If the result must not be stored, the header's soft
// TTL is zero.
func (c *Cache[V]) header(out loaded[V], g Grant) frame.Header {
	h := frame.Header{ID: g.Token, Null: out.notFound, Took: out.took, Codec: c.codec, Stamp: g.Stamp}
	ttl := c.opts.TTL
	if out.notFound {
		ttl = c.opts.NegativeTTL
	} else { // "does not exist" has no stale windows from Options, because NegativeTTL is meant to be short
		h.Revalidate, h.IfError = c.opts.StaleWhileRevalidate, c.opts.StaleIfError
	}
	if out.entry.NoShare {
		h.Revalidate, h.IfError = 0, 0
		if h.Soft = out.entry.TTL; h.Soft > 0 {
			h.Unshared, h.Null, h.Created = true, out.notFound || out.unkept(), c.store.Now()
		}
		return h
	}
	if out.entry.NoStore || ttl < 0 {
		return h
	}
	// A TTL from the load is used unchanged, without Jitter.
	if h.Soft = out.entry.TTL; h.Soft == 0 {
		h.Soft = jittered(ttl, c.opts.Jitter)
	}
	if d := out.entry.StaleWhileRevalidate; d != 0 {
		h.Revalidate = max(d, 0)
	}
	if d := out.entry.StaleIfError; d != 0 {
		h.IfError = max(d, 0)
	}
	h.Created = c.store.Now()
	return h
}

// settle ends a lease. If the first try fails, it tries again in the background, so that callers
// don't wait for a store that is in trouble.
func (c *Cache[V]) settle(end func(context.Context) error) {
	ctx := context.Background()
	if err := end(ctx); err != nil {
		c.down(ctx, &c.leasing, "", err)
		c.background(end)
	}
}

// background repeats the end of a lease until it succeeds, or until the lease would have expired.
func (c *Cache[V]) background(end func(context.Context) error) {
	// The lease may have been renewed a moment ago, so it may last for a whole LeaseTTL.
	until := time.Now().Add(c.opts.LeaseTTL)
	if !c.life.ends.Go(func() {
		for pause := 20 * time.Millisecond; ; pause *= 2 {
			if end(context.Background()) == nil || time.Now().Add(pause).After(until) {
				return
			}
			if !c.life.ends.Sleep(pause) { // the cache closes: one last try, at once
				_ = end(context.Background())
				return
			}
		}
	}) { // the cache is closed: a single try, at once
		_ = end(context.Background())
	}
}

// givenUp reports whether the load was stopped because its callers had left or the cache was
// closed. Such an end is not a failure of the origin, so it must not make the fleet pause.
func givenUp(cause error) bool { return errors.Is(cause, errAbandoned) || errors.Is(cause, ErrClosed) }
