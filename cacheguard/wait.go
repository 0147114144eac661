package cacheguard

import (
	"context"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/report"
)

// end continues a call whose flight has landed, or whose context has ended.
//
//go:noinline
func (c *Cache[V]) end(ctx context.Context, key string, call *call[V], res *Result[V]) error {
	f := call.flight
	call.flight = nil
	out, err := f.Outcome(ctx)
	if err != nil {
		return err
	}
	return c.accept(ctx, f, key, call, out, res)
}

// endValue is end for Get.
//
//go:noinline
func (c *Cache[V]) endValue(ctx context.Context, key string, call *call[V]) (V, error) {
	var res Result[V]
	err := c.end(ctx, key, call, &res)
	return res.Value, err
}

// await makes the caller wait for a flight that another caller leads.
func (c *Cache[V]) await(
	ctx context.Context, f *flight.Flight[outcome[V]], key string, call *call[V], res *Result[V],
) error {
	if chainOf(ctx) != nil {
		// The flight may be waiting for the load that makes this call, which would be a deadlock.
		if c.inside(ctx, keyID(key)) {
			f.Leave()
			return recursion(key)
		}
		c.urge(ctx, f)
	}
	if began := c.beganToWait(f); !began.IsZero() {
		call.late = began.Sub(f.Detached())
	}
	var out *outcome[V]
	var err error
	if c.opts.SoftTimeout > 0 {
		out, err = c.resultWithin(ctx, f, c.opts.SoftTimeout)
	} else if d := desk.From(ctx); d != nil && d.Caller != nil {
		out, err = desk.Hear(ctx, d, f)
	} else {
		call.flight = f
		return nil
	}
	if err != nil {
		return err
	}
	return c.accept(ctx, f, key, call, out, res)
}

// accept gives the caller the outcome of a flight that another caller leads.
//
// With StrongReads, and in besideLease, the outcome may be too old for this caller. A flight's
// result is as old as its request to the store, or as the beginning of its load. If the caller
// joined later, a change may have returned in another process in between, and the result may be
// from before that change. Then the caller takes part in a second flight. It has waited for the
// first flight nevertheless, so that a burst of calls shares look-ups: all callers that come during
// one flight share the next.
func (c *Cache[V]) accept(ctx context.Context, f *flight.Flight[outcome[V]], key string,
	call *call[V], out *outcome[V],
	res *Result[V]) error {
	if !c.tooOld(out, f, call.came) {
		var began time.Time
		if call.late > 0 {
			began = f.Detached().Add(call.late)
		}
		return c.shared(ctx, f, key, call.load, out, began, res)
	}
	// The next flight began after this call, so its result is new enough.
	next, leads := c.flights[call.group].JoinNext(f, call.came)
	if call.came = 0; leads {
		return c.lead(ctx, next, key, call, res)
	}
	return c.await(ctx, next, key, call, res)
}

// tooOld reports whether a flight's result may be from before a change that had returned when the
// caller came. If came is 0, the caller accepts any result. An error is never too old. While the
// store can't be read, StrongReads is not in force, because this process can't learn of changes
// then.
func (c *Cache[V]) tooOld(out *outcome[V], f *flight.Flight[outcome[V]], came uint64) bool {
	if came == 0 || out.err != nil || out.unshared() || out.res.Degraded && c.reading.is() {
		return false
	}
	return !f.Since(came)
}

// resultWithin waits until a flight lands. If there is a stale value to serve, it waits for
// patience at most, and then returns the stale value.
func (c *Cache[V]) resultWithin(
	ctx context.Context, f *flight.Flight[outcome[V]], patience time.Duration,
) (*outcome[V], error) {
	// urge did nothing while there was an offer, and the offer has expired.
	out, early, err := f.WaitAtMost(ctx, patience, func() { c.urge(ctx, f) })
	if early {
		out.res = out.res.later(time.Since(out.also.at))
	}
	return &out, err
}

// shared turns the outcome of a flight that another caller has led into the result of this call.
func (c *Cache[V]) shared(ctx context.Context, f *flight.Flight[outcome[V]], key string,
	load loader[V], out *outcome[V],
	began time.Time, res *Result[V]) error {
	if out.unshared() {
		return c.loadUnshared(ctx, key, load, out.also.marker, res)
	}
	if several := out.several(); several != nil {
		return c.ofSeveral(ctx, key, load, several, res)
	}
	*res = out.res
	switch res.Status {
	case StatusHit:
		return c.answer(ctx, key, res)
	case StatusLoaded:
		res.Status = StatusCoalesced
	}
	if c.opts.Observer != nil {
		c.served(ctx, EventCoalesced, key, f, out, began)
	}
	return res.withNotFound(out.err)
}

// urge lets a flight go on without a slot if a load that has a slot waits for it. Otherwise the two
// could block each other, because the flight may be waiting for the load's slot. If the flight
// offers a stale value, urge does nothing, because the load won't wait for long.
func (c *Cache[V]) urge(ctx context.Context, f *flight.Flight[outcome[V]]) {
	if insideLoad(ctx, c.opts.Limiter) && !f.Offers() {
		f.Urge()
	}
}

// turnAway returns the error for a caller that could not join a flight because MaxWaiters callers
// already wait. Inside a load of the same key it returns ErrRecursion, because the cause is
// recursion and ErrOverloaded would hide it.
func (c *Cache[V]) turnAway(ctx context.Context, key, id string) error {
	if c.inside(ctx, id) {
		return recursion(key)
	}
	err := fmt.Errorf("%w: %d callers wait for the key already", ErrOverloaded, c.opts.MaxWaiters)
	c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
	return err
}

func recursion(key string) error { return fmt.Errorf("%w: %s", ErrRecursion, report.QuoteKey(key)) }
