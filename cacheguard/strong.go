package cacheguard

import (
	"context"

	"github.com/cacheguard/cacheguard/internal/flight"
)

// What Options.StrongReads adds. A flight's result is as of the moment before the question to the store that it comes from,
// or before its load began. For who joined the flight later than that, it may be what was so before a change that had
// returned when this caller came, of which its process hasn't heard yet. Such a caller waits all the same, so that a burst
// doesn't become as many look-ups, and then takes another one: all who come while one is out share the next.

// takePart makes the caller a member of a flight of this group, and returns it if the caller is to lead it. If not, it waits for
// it and returns in res what the caller gets of it.
func (c *Cache[V]) takePart(ctx context.Context, group *flight.Group[outcome[V]], key, id string, load loader[V], since uint64,
	res *Result[V]) (leads *flight.Flight[outcome[V]], err error) {
	came := flight.Now()
	f, first := group.JoinSince(id, c.opts.MaxWaiters, since)
	for asked := false; ; asked = true {
		if f == nil {
			return nil, c.turnAway(ctx, key, id)
		}
		if first {
			return f, nil
		}
		out, began, err := c.await(ctx, f, key, id)
		if err != nil {
			return nil, err
		}
		if asked || !c.opts.StrongReads || !c.tooOld(out, f, came) {
			return nil, c.shared(ctx, f, key, id, load, out, began, res)
		}
		// What the next one brings was found after it was begun, which was after this call.
		f, first = group.JoinNext(f, came)
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
