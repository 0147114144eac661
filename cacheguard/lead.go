package cacheguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/frame"
)

// maxCarried is the largest frame that goes along with an outcome instead of being loaded again.
const maxCarried = 4 << 10

// lead runs the load under a granted lease, keeps the lease meanwhile, stores what comes of it and lands the flight.
// It reports false if another load has taken the lease: then there is somebody to follow.
func (c *Cache[V]) lead(ctx context.Context, p *pursuit[V], slot func(), g Grant, asked time.Time) bool {
	if ctx.Err() != nil || c.life.closing.Err() != nil { // the grant came too late: don't begin what nobody waits for
		slot()
		c.settle(func(ctx context.Context) error { return c.store.Release(ctx, p.key, g.Token) })
		p.land(Result[V]{}, cmp.Or(context.Cause(ctx), ErrClosed))
		return true
	}
	loadCtx, cancelLoad := c.loadContext(ctx)
	defer cancelLoad()
	loadCtx, lose := context.WithCancelCause(loadCtx)
	defer lose(nil)
	stop := c.keep(loadCtx, p, g, asked, lose)
	out := c.wait(loadCtx, p, c.start(loadCtx, p, slot))
	stop()
	p.note = out.note

	ctx = context.WithoutCancel(ctx) // what follows must happen, whoever has left
	switch cause := context.Cause(loadCtx); {
	case out.err == nil:
		c.keepResult(ctx, p, g, out)
	case errors.Is(cause, ErrLeaseLost):
		return false
	case givenUp(cause):
		// Given up here, not failed at the origin: those who wait elsewhere ask again and load for themselves.
		c.settle(func(ctx context.Context) error { return c.store.Release(ctx, p.key, g.Token) })
		p.land(Result[V]{}, cause)
	default:
		c.failed(p, g, out)
	}
	return true
}

// failed tells everybody that a load failed, and lands the flight.
func (c *Cache[V]) failed(p *pursuit[V], g Grant, out loaded[V]) {
	err := out.err
	backoff := c.opts.backoff(p.failures+1, time.Until(p.until))
	c.failures.remember(p.key.Key, g.Token, err, backoff, c.opts.LeaseTTL)
	c.restraint.remember(p.key.Key, p.asked, p.seen, backoff+grace(backoff), err)
	c.conclude(p, g, Outcome{Kind: OutcomeFailed, Text: c.errorText(err), Note: out.note, Failures: p.failures + 1}, backoff)
	p.fail(Result[V]{Status: StatusLoaded}, err)
}

// keepResult stores the result of a load, or says to those who wait why not, and lands the flight.
func (c *Cache[V]) keepResult(ctx context.Context, p *pursuit[V], g Grant, out loaded[V]) {
	h := c.header(out, g)
	if !out.storable(h) {
		c.notStored(ctx, p, g, out, h)
		return
	}
	frame.Seal(out.frame, h)
	ans, err := c.store.Fill(ctx, p.key, g, out.frame, h.Hard()+out.entry.Keep)
	c.filled(ctx, p, g, out, h, ans, err)
}

// notStored tells those who wait of a result that is not stored, and lands the flight.
func (c *Cache[V]) notStored(ctx context.Context, p *pursuit[V], g Grant, out loaded[V], h frame.Header) {
	if out.entry.NoShare && out.entry.LeaveStored {
		c.conclude(p, g, Outcome{Kind: OutcomeUnshared, Note: out.note}, 0)
		p.flight.Land(outcome[V]{res: out.result(), also: &aside[V]{unshared: true, note: out.note}})
		return
	}
	c.near.drop(p.key.Key) // what is there is out of date
	if out.entry.NoShare {
		c.conclude(p, g, Outcome{Kind: OutcomeUnshared, Note: out.note, Drop: p.seen != nil}, 0)
		p.flight.Land(outcome[V]{res: out.result(), also: &aside[V]{unshared: true, note: out.note}})
		return
	}
	c.observe(ctx, Event{Kind: EventNotStored, Key: p.name, Err: out.keepErr})
	c.conclude(p, g, c.unstored(p, out, h), 0)
	p.land(out.result(), nil)
}

// filled lands the flight of a result that the store has been asked to keep.
func (c *Cache[V]) filled(ctx context.Context, p *pursuit[V], g Grant, out loaded[V], h frame.Header, ans FillAnswer, err error) {
	res := out.result()
	switch {
	case err != nil:
		// It may have been stored or not. If not, those who wait are told; if so, that does nothing.
		c.near.drop(p.key.Key)
		c.down(ctx, &c.storing, p.name, err)
		c.observe(ctx, Event{Kind: EventFillUnknown, Key: p.name, Err: err})
		o := c.unstored(p, out, h)
		c.background(func(ctx context.Context) error { return c.tell(ctx, p, g, o, 0) })
		res.Degraded = true
	case ans == FillStored:
		c.observe(ctx, Event{Kind: EventFilled, Key: p.name})
		c.up(ctx, &c.storing)
		if h.Unshared {
			c.near.drop(p.key.Key)
			break
		}
		res = res.later(max(c.store.Now().Sub(h.Created), 0)) // what the fill took
		res.FreshFor += h.Soft
		c.near.replace(p.key.Key, p.stamp, found[V]{
			res: res, good: useFresh, keeps: h.Hard() - res.Age, took: h.Took, load: g.Token, id: frame.ID(out.frame),
			tags: out.tags, stamp: h.Stamp,
		})
	default: // for those who waited from before, and nobody else
		c.observe(ctx, Event{Kind: EventFillRefused, Key: p.name})
	}
	p.landOwn(res, out.entry.NoShare)
}

// storable reports whether a result with this header is to be stored, and can be.
func (out loaded[V]) storable(h frame.Header) bool {
	return (!out.entry.NoShare || h.Unshared) && out.keepErr == nil && h.Soft > 0
}

// header makes the header of a result's frame. A soft TTL of zero says that the result is not to be stored.
func (c *Cache[V]) header(out loaded[V], g Grant) frame.Header {
	h := frame.Header{ID: g.Token, Null: out.notFound, Took: out.took, Codec: c.codec, Stamp: g.Stamp}
	ttl := c.opts.TTL
	if out.notFound {
		ttl = c.opts.NegativeTTL
	} else { // what does not exist is not served for longer than NegativeTTL, which is there to be short
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
	// The load's own word counts, and exactly that.
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

// unstored is the outcome of a load whose result is not in the store: carried along if it is small, else loaded by
// everybody for themselves, in parallel. What stands in the store goes: it is out of date.
func (c *Cache[V]) unstored(p *pursuit[V], out loaded[V], h frame.Header) Outcome {
	if out.entry.NoShare || out.frame == nil || len(out.frame) > maxCarried {
		return Outcome{Kind: OutcomeUnshared, Note: out.note, Drop: p.seen != nil}
	}
	h.Created, h.Soft, h.Revalidate, h.IfError = c.store.Now(), minTTL, 0, 0
	f := append([]byte(nil), out.frame...)
	frame.Seal(f, h)
	return Outcome{Kind: OutcomeUnstored, Frame: f, Drop: p.seen != nil}
}

// conclude ends the lease of a load that leaves no value. The record outlives every timer of those who wait for this
// load, so that a lost message costs them no second load, and its own back-off, so that the next one can grow.
func (c *Cache[V]) conclude(p *pursuit[V], g Grant, o Outcome, backoff time.Duration) {
	c.settle(func(ctx context.Context) error { return c.tell(ctx, p, g, o, backoff) })
}

func (c *Cache[V]) tell(ctx context.Context, p *pursuit[V], g Grant, o Outcome, backoff time.Duration) error {
	return c.store.Conclude(ctx, p.key, g, o, max(2*backoff, c.opts.LeaseTTL+time.Second), backoff)
}

// settle does what ends a lease once, and if that fails, goes on trying behind the callers' backs.
func (c *Cache[V]) settle(end func(context.Context) error) {
	ctx := context.Background()
	if err := end(ctx); err != nil {
		c.down(ctx, &c.leasing, "", err)
		c.background(end)
	}
}

// background repeats what ends a lease until it worked, or until the lease is over by itself.
func (c *Cache[V]) background(end func(context.Context) error) {
	// The lease may have been renewed a moment ago.
	until := time.Now().Add(c.opts.LeaseTTL)
	if !c.life.begin() { // closing: one try, at once
		_ = end(context.Background())
		return
	}
	go func() {
		defer c.life.end()
		for pause := 20 * time.Millisecond; ; pause *= 2 {
			if end(context.Background()) == nil || time.Now().Add(pause).After(until) {
				return
			}
			if !c.life.sleep(pause) { // closing: once more, at once
				_ = end(context.Background())
				return
			}
		}
	}()
}

// loadContext bounds a load by LoadTimeout.
func (c *Cache[V]) loadContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.opts.LoadTimeout,
		fmt.Errorf("cacheguard: load took longer than LoadTimeout of %v: %w", c.opts.LoadTimeout, context.DeadlineExceeded))
}

// wait returns how the load ended, or, when its context has ended before it, that.
func (c *Cache[V]) wait(ctx context.Context, p *pursuit[V], load *running[loaded[V]]) loaded[V] {
	out, ok := ended(ctx, load.done)
	if !ok {
		c.lateLoad(func() {
			out := <-load.done
			if p.late != nil {
				p.late()
			}
			c.observe(ctx, Event{Kind: EventLoadLate, Key: p.name, Took: out.took, Note: out.note, Err: out.err})
		})
		return loaded[V]{err: context.Cause(ctx), note: load.noted()}
	}
	if out.err != nil && ctx.Err() != nil {
		out.err = context.Cause(ctx) // it was told to stop, and did
	}
	return out
}

// ended returns what comes of done, unless ctx ends before it. When it is both at once, a result is better than none.
func ended[T any](ctx context.Context, done <-chan T) (out T, ok bool) {
	select {
	case out = <-done:
		return out, true
	case <-ctx.Done():
	}
	select {
	case out = <-done:
		return out, true
	default:
		return out, false
	}
}

// lateLoad watches a load that has been told to stop and hasn't yet.
func (c *Cache[V]) lateLoad(watch func()) {
	c.life.loads.Add(1)
	go func() {
		defer c.life.loads.Done()
		watch()
	}()
}

// keep renews the lease at a third of its time until the returned function is called or ctx ends, which LoadTimeout
// sees to: a load that hangs can't hold a key for ever.
func (c *Cache[V]) keep(ctx context.Context, p *pursuit[V], g Grant, asked time.Time, lose context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	if !c.life.begin() {
		return cancel
	}
	timer := time.AfterFunc(time.Until(asked.Add(c.opts.LeaseTTL/3)), func() {
		defer c.life.end()
		c.renew(ctx, p, g, asked, lose)
	})
	return func() {
		cancel()
		if timer.Stop() {
			c.life.end()
		}
	}
}

// renew is the loop behind keep.
func (c *Cache[V]) renew(ctx context.Context, p *pursuit[V], g Grant, asked time.Time, lose context.CancelCauseFunc) {
	until := asked.Add(c.opts.LeaseTTL) // counted from before the request was sent
	lost := func() { c.lost(ctx, p) }
	for ctx.Err() == nil {
		sent := time.Now()
		pause := c.opts.LeaseTTL / 3
		switch held, err := c.store.Renew(ctx, p.key, g, c.opts.LeaseTTL); {
		case ctx.Err() != nil:
			return
		case err != nil && !sent.Before(until):
			lost() // as good as gone: nobody knows
			return
		case err != nil:
			pause = min(c.opts.LeaseTTL/10, max(time.Until(until), time.Millisecond))
		case held == HoldingGone:
			lost() // invalidated or evicted: the load goes on for those who wait for it
			return
		case held == HoldingOther:
			lost()
			lose(ErrLeaseLost)
			return
		default:
			until = sent.Add(c.opts.LeaseTTL)
			c.observe(ctx, Event{Kind: EventRenewed, Key: p.name})
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// lost says that the lease of a running load is lost: nobody joins it any more.
func (c *Cache[V]) lost(ctx context.Context, p *pursuit[V]) {
	c.observe(ctx, Event{Kind: EventLeaseLost, Key: p.name})
	if p.flight != nil { // a claim has none
		p.flight.Seal()
	}
}
