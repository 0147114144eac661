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

	ctx = context.WithoutCancel(ctx) // what follows must happen, whoever has left
	switch cause := context.Cause(loadCtx); {
	case out.err == nil:
		c.keepResult(ctx, p, g, out)
	case errors.Is(cause, ErrLeaseLost):
		return false
	case errors.Is(cause, errAbandoned) || errors.Is(cause, ErrClosed):
		// Given up here, not failed at the origin: those who wait elsewhere ask again and load for themselves.
		c.settle(func(ctx context.Context) error { return c.store.Release(ctx, p.key, g.Token) })
		p.land(Result[V]{}, cause)
	default:
		backoff := max(c.opts.ErrorTTL, 0)
		c.failures.remember(p.key.Key, g.Token, out.err, max(backoff, c.opts.LeaseTTL))
		c.conclude(p, g, Outcome{Kind: OutcomeFailed, Text: c.errorText(out.err)}, backoff)
		p.land(Result[V]{Status: StatusLoaded}, out.err)
	}
	return true
}

// keepResult stores the result of a load, or says to those who wait why not, and lands the flight.
func (c *Cache[V]) keepResult(ctx context.Context, p *pursuit[V], g Grant, out loaded[V]) {
	res := Result[V]{Value: out.entry.Value, NotFound: out.notFound, Status: StatusLoaded}
	ttl := c.lifetime(out)
	switch {
	case out.entry.NoShare:
		c.conclude(p, g, Outcome{Kind: OutcomeUnshared}, 0)
		p.flight.Land(outcome[V]{res: res, unshared: true})
		return
	case out.keepErr != nil || ttl <= 0:
		c.observe(ctx, Event{Kind: EventNotStored, Key: p.name, Err: out.keepErr})
		c.conclude(p, g, c.unstored(out, g), 0)
		p.land(res, nil)
		return
	}
	frame.Seal(out.frame, c.header(out.notFound, g.Token, ttl, out.took))
	switch ans, err := c.store.Fill(ctx, p.key, g, out.frame, ttl); {
	case err != nil:
		// It may have been stored or not. If not, those who wait are told; if so, that does nothing.
		c.down(ctx, &c.storing, p.name, err)
		c.observe(ctx, Event{Kind: EventFillUnknown, Key: p.name, Err: err})
		o := c.unstored(out, g)
		c.background(func(ctx context.Context) error { return c.tell(ctx, p, g, o, 0) })
		res.Degraded = true
	case ans == FillStored:
		c.observe(ctx, Event{Kind: EventFilled, Key: p.name})
		c.up(ctx, &c.storing)
		res.FreshFor = ttl
	default: // for those who waited from before, and nobody else
		c.observe(ctx, Event{Kind: EventFillRefused, Key: p.name})
	}
	p.land(res, nil)
}

// lifetime is how long a result is fresh and kept, 0 if it is not to be stored.
func (c *Cache[V]) lifetime(out loaded[V]) time.Duration {
	ttl := c.opts.TTL
	if out.notFound {
		ttl = c.opts.NegativeTTL
	}
	switch {
	case out.entry.NoStore || ttl < 0:
		return 0
	case out.entry.TTL > 0:
		return out.entry.TTL // the load's own word: exactly that
	}
	return jittered(ttl, c.opts.Jitter)
}

func (c *Cache[V]) header(notFound bool, token ID, ttl, took time.Duration) frame.Header {
	return frame.Header{
		ID: token, Null: notFound, Created: c.store.Now(), Soft: ttl, Hard: ttl, Took: took, Codec: c.codec,
	}
}

// unstored is the outcome of a load whose result is not in the store: carried along if it is small, else loaded by
// everybody for themselves, in parallel.
func (c *Cache[V]) unstored(out loaded[V], g Grant) Outcome {
	if out.frame == nil || len(out.frame) > maxCarried {
		return Outcome{Kind: OutcomeUnshared}
	}
	f := append([]byte(nil), out.frame...)
	frame.Seal(f, c.header(out.notFound, g.Token, minTTL, out.took))
	return Outcome{Kind: OutcomeUnstored, Frame: f}
}

// conclude ends the lease of a load that leaves no value. The record outlives every timer of those who wait for this
// load, so that a lost message costs them no second load.
func (c *Cache[V]) conclude(p *pursuit[V], g Grant, o Outcome, backoff time.Duration) {
	c.settle(func(ctx context.Context) error { return c.tell(ctx, p, g, o, backoff) })
}

func (c *Cache[V]) tell(ctx context.Context, p *pursuit[V], g Grant, o Outcome, backoff time.Duration) error {
	return c.store.Conclude(ctx, p.key, g, o, max(backoff, c.opts.LeaseTTL+time.Second), backoff)
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
func (c *Cache[V]) wait(ctx context.Context, p *pursuit[V], done <-chan loaded[V]) loaded[V] {
	select {
	case out := <-done:
		if out.err != nil && ctx.Err() != nil {
			out.err = context.Cause(ctx) // it was told to stop, and did
		}
		return out
	case <-ctx.Done():
	}
	select {
	case out := <-done: // both at once: a result is better than none
		if out.err == nil {
			return out
		}
	default:
		c.lateLoad(ctx, p, done)
	}
	return loaded[V]{err: context.Cause(ctx)}
}

// lateLoad watches a load that has been told to stop and hasn't yet.
func (c *Cache[V]) lateLoad(ctx context.Context, p *pursuit[V], done <-chan loaded[V]) {
	c.life.loads.Add(1)
	go func() {
		defer c.life.loads.Done()
		out := <-done
		if p.late != nil {
			p.late()
		}
		c.observe(ctx, Event{Kind: EventLoadLate, Key: p.name, Took: out.took, Err: out.err})
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
	lost := func() {
		c.observe(ctx, Event{Kind: EventLeaseLost, Key: p.name})
		if p.flight != nil { // a claim has none
			p.flight.Seal()
		}
	}
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
