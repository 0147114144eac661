package cacheguard

import "context"

// Refresh loads a key even if its value is fresh, and stores the result. Calls of Refresh at the
// same time share one load. If a load of the key is under way when Refresh is called, Refresh waits
// for that load and returns its result. If a load has failed, Refresh returns the load's error
// until the back-off is over. Refresh never returns a stale value in place of an error.
func (c *Cache[V]) Refresh(ctx context.Context, key string, load LoadFunc[V]) (v V, err error) {
	call := call[V]{group: refreshes, load: loader[V]{value: load}}
	for v, err = c.beginValue(ctx, key, &call); call.flight != nil; v, err = c.endValue(ctx, key,
		&call) {
		call.flight.Await(ctx.Done())
	}
	return v, err
}

// RefreshEntry is like Refresh, with a load that sees the previous value and decides how long its
// result is kept. The previous value may be fresh.
func (c *Cache[V]) RefreshEntry(
	ctx context.Context, key string, load EntryFunc[V],
) (res Result[V], err error) {
	call := call[V]{group: refreshes, load: loader[V]{entry: load}}
	for err = c.begin(ctx, key, &call, &res); call.flight != nil; err = c.end(ctx, key, &call,
		&res) {
		call.flight.Await(ctx.Done())
	}
	return res, err
}

// reload is the path of the caller that leads a flight of refreshes.
//
//go:noinline
func (c *Cache[V]) reload(ctx context.Context, of *target[V], res *Result[V]) error {
	// The request for the lease names the stored value, so that the store grants the lease although
	// there is a value.
	got, _, err := c.lookUp(ctx, of, false)
	return c.detach(ctx, c.missOf(of, got, err), res)
}
