package cacheguard

import (
	"context"
)

// Refresh loads although the value is fresh, coalesced like any load, and stores the result. A load of the key that
// is under way when Refresh is called is waited for and counts; so does one that has failed, for as long as its
// back-off lasts. Refresh never returns a stale value in place of an error.
func (c *Cache[V]) Refresh(ctx context.Context, key string, load LoadFunc[V]) (V, error) {
	var zero V
	if load == nil {
		return zero, errNoLoad
	}
	r, err := c.refresh(ctx, key, loader[V]{value: load})
	return r.Value, err
}

// RefreshEntry is Refresh for a load that sees the previous value, which may be fresh, and decides how long its result is
// kept.
func (c *Cache[V]) RefreshEntry(ctx context.Context, key string, load EntryFunc[V]) (Result[V], error) {
	if load == nil {
		return Result[V]{}, errNoLoad
	}
	return c.refresh(ctx, key, loader[V]{entry: load})
}

func (c *Cache[V]) refresh(ctx context.Context, key string, load loader[V]) (res Result[V], err error) {
	if err := c.enter(ctx); err != nil {
		return res, err
	}
	id := keyID(key)
	f, err := c.takePart(ctx, &c.refreshes, key, id, load, c.since(ctx, id), &res)
	if f == nil {
		return res, err
	}
	// What stands there now is what the lease is asked for in spite of.
	k := c.key(id)
	got, err := c.lookUp(ctx, f, key, k)
	return c.detach(ctx, f, c.missOf(key, k, load, got, err))
}
