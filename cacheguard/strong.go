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
func (c *Cache[V]) getStrong(ctx context.Context, key, id string, load loader[V], since uint64, res *Result[V]) error {
	came := flight.Now()
	f, leads := c.reads.JoinSince(id, c.opts.MaxWaiters, since)
	for asked := false; ; asked = true {
		if f == nil {
			return c.turnAway(ctx, key, id)
		}
		if leads {
			return c.lookInto(ctx, f, key, id, load, res)
		}
		out, began, err := c.await(ctx, f, key, id)
		if err != nil {
			return err
		}
		if asked || !c.tooOld(out, f, came) {
			return c.shared(ctx, f, key, id, load, out, began, res)
		}
		// What the next one brings was found after it was begun, which was after this call.
		f, leads = c.reads.JoinNext(f, came)
	}
}

// tooOld reports whether what a flight has brought may be from before a change that had returned at that moment. Errors are
// none's values, and while the store can't be read there are no changes to be heard of.
func (c *Cache[V]) tooOld(out *outcome[V], f *flight.Flight[outcome[V]], came uint64) bool {
	if out.err != nil || out.unshared() || out.res.Degraded && c.reading.said.Load() {
		return false
	}
	return !f.Since(came)
}
