package cacheguard

import (
	"context"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// What Options.StrongReads adds. A flight's result is as of the moment before the question to the store that it comes from,
// or before its load began. For who joined the flight later than that, it may be what was so before a change that had
// returned when this caller came, of which its process hasn't heard yet. Such a caller waits all the same, so that a burst
// doesn't become as many look-ups, and then takes another one: all who come while one is out share the next.

// getStrong is the rest of get for a cache with StrongReads.
func (c *Cache[V]) getStrong(ctx context.Context, key, id string, load loader[V], since uint64) (Result[V], error) {
	came := flight.Now()
	f, leads := c.reads.JoinSince(id, c.opts.MaxWaiters, since)
	switch {
	case f == nil:
		return c.turnAway(ctx, key, id)
	case leads:
		return c.look(ctx, f, key, c.key(id), load)
	}
	res, again, err := c.awaitStrong(ctx, f, key, id, load, came)
	if !again {
		return res, err
	}
	// What this flight brings was found after it was begun, which was after this call.
	f, leads = c.reads.JoinNext(f, c.opts.MaxWaiters, came)
	switch {
	case f == nil:
		return c.turnAway(ctx, key, id)
	case leads:
		return c.look(ctx, f, key, c.key(id), load)
	}
	return c.await(ctx, f, key, id, load)
}

// awaitStrong is await for a caller who came at that moment. again says that the result is from before, so that the caller
// has to ask again.
func (c *Cache[V]) awaitStrong(ctx context.Context, f *flight.Flight[outcome[V]], key, id string, load loader[V], came uint64) (res Result[V], again bool, err error) {
	if c.inside(ctx, id) { // the flight may be waiting for this very load
		f.Leave()
		return res, false, recursion(key)
	}
	c.urge(ctx, f)
	began := c.watch(f)
	out, err := c.result(ctx, f)
	if err != nil {
		return res, false, err
	}
	if out.tooOld(f, came) {
		return res, true, nil
	}
	res, err = c.shared(ctx, f, key, id, load, out, began)
	return res, false, err
}

// tooOld reports whether what a flight has brought may be from before a change that had returned at that moment. Errors are
// none's values, and while the store can't be used there are no changes to be heard of.
func (out *outcome[V]) tooOld(f *flight.Flight[outcome[V]], came uint64) bool {
	if out.err != nil || out.unshared() || out.res.Degraded {
		return false
	}
	return out.offered() || !f.Since(came)
}
