package cacheguard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/frame"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// release gives up a lease.
func (r *run[V]) release(m *miss[V]) {
	r.settle(r.releaseOf(m))
}

// releaseOf returns the function that gives up the lease for which a miss has asked last.
func (r *run[V]) releaseOf(m *miss[V]) func(context.Context) error {
	// Copies, because the miss may ask again with a new token before the release has reached the
	// store.
	store, key, token := r.cache.store, m.key, m.asked.token
	return func(ctx context.Context) error { return store.Release(ctx, key, token) }
}

// fill stores the results of a load.
func (r *run[V]) fill(all []*miss[V]) {
	fills, now := make([]FillAsk, len(all)), r.cache.store.Now()
	for i, m := range all {
		m.ownLoad.header.Created = now
		frame.Seal(m.ownLoad.out.frame, m.ownLoad.header)
		fills[i] = FillAsk{
			Key: m.key, Grant: m.ans.Grant, Frame: m.ownLoad.out.frame,
			TTL: m.ownLoad.header.Hard() + m.ownLoad.out.entry.Keep,
		}
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
	c, h, out := r.cache, m.ownLoad.header, &m.ownLoad.out
	if m.Claims { // the fill of a write has no events; Update returns what happened
		m.ownLoad.stored = err == nil && ans == FillStored
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
			made: made{
				id: frame.ID(out.frame), load: ID(h.ID), took: h.Took, tags: out.tags,
				stamp:      h.Stamp,
				revalidate: h.Revalidate, ifError: h.IfError,
			},
		})
	default: // refused: only callers that already wait get the result
		c.observe(r.ctx, Event{Kind: EventFillRefused, Key: m.name})
	}
	m.ownLoad.res = res
	r.step(m, e)
}

// conclude tells the store the reason why there is no value. The store sends the reason to all
// processes that wait.
func (r *run[V]) conclude(m *miss[V]) {
	c, whole := r.cache, false
	defer func() {
		if !whole { // ErrorText has called Goexit
			r.endLater(r.releaseOf(m))
		}
	}()
	o, backoff := Outcome{}, time.Duration(0)
	if m.State == protocol.Failing {
		m.ownLoad.res.Status = StatusLoaded
		o, backoff = c.outcomeOfFailure(m)
	} else {
		o = c.notStored(r.ctx, m)
	}
	whole = true
	r.settle(func(ctx context.Context) error { return c.sendOutcome(ctx, m, o, backoff) })
}

// outcomeOfFailure returns the outcome of a load that has failed, and the time during which no
// process repeats the load. It also remembers the error value in this process.
func (c *Cache[V]) outcomeOfFailure(m *miss[V]) (o Outcome, backoff time.Duration) {
	backoff = c.standBack(m, true)
	return Outcome{
		Kind: OutcomeFailed, Text: c.errorText(m.ownLoad.out.err), Note: m.note,
		Failures: m.ans.Failures + 1,
	}, backoff
}

// standBack makes this process wait before it repeats a load that has just failed, and returns the
// back-off. If others is true, the other processes wait for the back-off, too. Calls then still ask
// the store during the back-off, because a change ends the back-off.
func (c *Cache[V]) standBack(m *miss[V], others bool) (backoff time.Duration) {
	err := m.ownLoad.out.err
	backoff = c.opts.backoff(m.ans.Failures+1, time.Until(m.servableUntil()))
	shared, alone := backoff, grace(backoff)
	if !others {
		shared, alone = 0, backoff+alone
	}
	c.failures.Remember(m.key.Key, m.asked.token, err, c.opts.remembered(backoff), shared, alone,
		func() bool {
			// A change that is counted from now on forgets the error afterwards.
			return c.changed.Count(m.key.Key) == m.asked.changed
		})
	c.pause(m, shared+alone, err)
	return backoff
}

// notStored returns the outcome of a load whose result is not stored.
func (c *Cache[V]) notStored(ctx context.Context, m *miss[V]) Outcome {
	m.ownLoad.res = m.ownLoad.out.result()
	m.ownLoad.res.stamp = m.ownLoad.header.Stamp
	switch e := &m.ownLoad.out.entry; {
	case e.NoShare && e.LeaveStored:
		return Outcome{Kind: OutcomeUnshared, Note: m.note}
	case !e.NoShare:
		c.observe(ctx, Event{Kind: EventNotStored, Key: m.name, Err: m.ownLoad.out.keepErr})
	}
	c.tier.values.Drop(m.key.Key) // the old value is out of date
	return c.unstored(m)
}

// unstored returns the outcome of a load whose result is not in the store. A small result is a part
// of the outcome. If the result is large, callers of other processes load for themselves, in
// parallel. The stored value is removed, because it is out of date.
func (c *Cache[V]) unstored(m *miss[V]) Outcome {
	out, h := &m.ownLoad.out, m.ownLoad.header
	if out.entry.NoShare || out.frame == nil || len(out.frame) > frame.MaxCarried {
		return Outcome{Kind: OutcomeUnshared, Note: m.note, Drop: m.had.id != nil}
	}
	h.Created, h.Soft, h.Revalidate, h.IfError = c.store.Now(), minTTL, 0, 0
	f := slices.Clone(out.frame)
	frame.Seal(f, h)
	return Outcome{Kind: OutcomeUnstored, Frame: f, Drop: m.had.id != nil}
}

// sendOutcome ends the lease of a load that leaves no value, and stores the outcome for processes
// that ask later.
func (c *Cache[V]) sendOutcome(
	ctx context.Context, m *miss[V], o Outcome, backoff time.Duration,
) error {
	return c.store.Conclude(ctx, m.key, m.ans.Grant, o, c.opts.recorded(backoff), backoff)
}

// storable reports whether a result with this header should and can be stored.
func (out loaded[V]) storable(h frame.Header) bool {
	return (!out.entry.NoShare || h.Unshared) && out.keepErr == nil && h.Soft > 0
}

// header makes the header of a result's frame, without Created. Created is set when the frame is
// stored, because it may take a trip to ask for the store's clock. If the result must not be
// stored, the header's soft TTL is zero.
func (c *Cache[V]) header(out loaded[V], g Grant) frame.Header {
	c.saw(g.Stamp)
	h := frame.Header{
		ID: g.Token, Null: out.notFound, Took: out.took, Codec: c.codec, Stamp: g.Stamp,
	}
	if s := out.entry.stamp; s > 0 {
		h.Stamp = min(s, g.Stamp)
	}
	ttl := c.opts.TTL
	if out.notFound {
		ttl = c.opts.NegativeTTL
	} else {
		// "does not exist" has no stale windows from Options, because NegativeTTL is meant to be
		// short.
		h.Revalidate, h.IfError = c.opts.StaleWhileRevalidate, c.opts.StaleIfError
	}
	if out.entry.NoShare {
		h.Revalidate, h.IfError = 0, 0
		if h.Soft = out.entry.TTL; h.Soft > 0 {
			h.Unshared, h.Null = true, out.notFound || out.unkept()
		}
		return h
	}
	if out.entry.NoStore || ttl < 0 && out.entry.TTL == 0 {
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
	return h
}

// settle ends a lease. If the first try fails, endLater notes the end, and sendLeftover tries again
// in the background, so that callers don't wait for a store that is in trouble.
func (r *run[V]) settle(end func(context.Context) error) {
	ctx := context.Background()
	if err := end(ctx); err != nil {
		r.endLater(end) // first, because an Observer may end this goroutine
		r.cache.down(ctx, &r.cache.leasing, "", err)
	}
}

// leftover has the ends of leases that must be sent to the store in the background.
type leftover struct {
	mu   sync.Mutex // guards ends, because the run sends several ends at the same time
	ends []func(context.Context) error
}

// endLater notes the end of a lease for sendLeftover.
func (r *run[V]) endLater(end func(context.Context) error) {
	r.left.mu.Lock()
	defer r.left.mu.Unlock()
	r.left.ends = append(r.left.ends, end)
}

// sendLeftover sends all noted ends in the background, together: if the store is in trouble, a run
// of thousands of misses must not leave thousands of goroutines behind.
func (r *run[V]) sendLeftover() {
	r.left.mu.Lock()
	defer r.left.mu.Unlock()
	if len(r.left.ends) > 0 {
		r.cache.background(r.left.ends...)
		r.left.ends = nil
	}
}

// background repeats the ends of leases until they succeed, or until the leases would have expired.
func (c *Cache[V]) background(ends ...func(context.Context) error) {
	// The leases may have been renewed a moment ago, so they may last for a whole LeaseTTL.
	until := time.Now().Add(c.opts.LeaseTTL)
	if !c.life.ends.Go(func() {
		for pause := 20 * time.Millisecond; ; pause *= 2 {
			if ends = failing(ends, until); len(ends) == 0 || time.Now().Add(pause).After(until) {
				return
			}
			if !c.life.ends.Sleep(pause) { // the cache closes: one last try, at once
				failing(ends, until)
				return
			}
		}
	}) { // the cache is closed: a single try, at once
		failing(ends, until)
	}
}

// failing sends the ends of leases, and returns those that have failed. After the time until, when
// the leases have ended, it sends no more, so that Close doesn't wait for them.
func failing(
	ends []func(context.Context) error, until time.Time,
) (left []func(context.Context) error) {
	var mu sync.Mutex // guards left
	atATime(ends, func(end func(context.Context) error) {
		if time.Now().Before(until) && end(context.Background()) != nil {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, end)
		}
	})
	return left
}

// givenUp reports whether the load was stopped because its callers had left, the cache was closed,
// or another load had the lease. Such an end is not a failure of the origin, so it must not make
// the fleet pause.
func givenUp(cause error) bool {
	return errors.Is(cause, flight.ErrAbandoned) || errors.Is(cause, ErrClosed) ||
		errors.Is(cause, ErrLeaseLost)
}
