package cacheguard

import (
	"context"
)

// Refresh loads although the value is fresh, coalesced like any load, and stores the result. A load of the key that
// is under way when Refresh is called is waited for and counts; so does one that has failed, for as long as its
// back-off lasts. Refresh never returns a stale value in place of an error.
func (c *Cache[V]) Refresh(ctx context.Context, key string, load LoadFunc[V]) (V, error) {
	if load == nil {
		var zero V
		return zero, errNoLoad
	}
	var res Result[V]
	err := c.refresh(ctx, key, loader[V]{value: load}, &res)
	return res.Value, err
}

// RefreshEntry is Refresh for a load that sees the previous value, which may be fresh, and decides how long its result is
// kept.
func (c *Cache[V]) RefreshEntry(ctx context.Context, key string, load EntryFunc[V]) (res Result[V], err error) {
	if load == nil {
		return res, errNoLoad
	}
	err = c.refresh(ctx, key, loader[V]{entry: load}, &res)
	return res, err
}

func (c *Cache[V]) refresh(ctx context.Context, key string, load loader[V], res *Result[V]) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	id := keyID(key)
	f, err := c.takePart(ctx, &c.refreshes, key, id, load, c.since(ctx, id), res)
	if f == nil {
		return err
	}
	// What stands there now is what the lease is asked for in spite of.
	k := c.key(id)
	got, err := c.lookUp(ctx, f, key, k)
	return c.detach(ctx, f, c.missOf(key, k, load, got, err), res)
}
