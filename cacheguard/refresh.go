package cacheguard

import "context"

// Refresh loads although the value is fresh, coalesced like any load, and stores the result. A load
// of the key that is under way when Refresh is called is waited for and counts; so does one that
// has failed, for as long as its back-off lasts. Refresh never returns a stale value in place of an
// error.
func (c *Cache[V]) Refresh(ctx context.Context, key string, load LoadFunc[V]) (v V, err error) {
	call := call[V]{group: refreshes, load: loader[V]{value: load}}
	for v, err = c.beginValue(ctx, key, &call); call.flight != nil; v, err = c.endValue(ctx, key, &call) {
		call.flight.Await(ctx.Done())
	}
	return v, err
}

// RefreshEntry is Refresh for a load that sees the previous value, which may be fresh, and decides
// how long its result is kept.
func (c *Cache[V]) RefreshEntry(ctx context.Context, key string, load EntryFunc[V]) (res Result[V], err error) {
	call := call[V]{group: refreshes, load: loader[V]{entry: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call, &res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// reload is the way of the caller that leads a flight of refreshes.
//
//go:noinline
func (c *Cache[V]) reload(ctx context.Context, of *target[V], res *Result[V]) error {
	// What stands there now is what the lease is asked for in spite of.
	got, _, err := c.lookUp(ctx, of, false)
	return c.detach(ctx, c.missOf(of, got, err), res)
}
