package cacheguard

import (
	"cmp"
	"context"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
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
	since, came := c.since(ctx, id), flight.Now()
	f, leads := c.refreshes.JoinSince(id, c.opts.MaxWaiters, since)
	for asked := false; ; asked = true {
		if f == nil {
			return res, c.turnAway(ctx, key, id)
		}
		if leads {
			break
		}
		out, began, err := c.await(ctx, f, key, id)
		if err != nil {
			return res, err
		}
		if !c.opts.StrongReads || asked || !c.tooOld(out, f, came) {
			err = c.shared(ctx, f, key, id, load, out, began, &res)
			return res, err
		}
		f, leads = c.refreshes.JoinNext(f, came)
	}
	// What stands there now is what the lease is asked for in spite of.
	p := &pursuit[V]{name: key, key: c.key(id), load: load}
	got, err := c.lookUp(ctx, f, key, p.key)
	p.saw(got)
	p.storeErr = err
	return c.detach(ctx, f, p)
}

// refreshBehind has a value refreshed that its callers already have: one flight for each key and process, and among
// the processes the lease, asked for without waiting, picks one. It outlives the caller, is bounded by LoadTimeout and
// the budget of loads, and ended by Close. If it fails, that stays in the store as a back-off for everybody.
func (c *Cache[V]) refreshBehind(ctx context.Context, name string, k Key, load loader[V], got found[V]) {
	if held, _ := c.restraint.find(k.Key, got.id); held || !desk.MayRefresh(ctx, got.res.Value) {
		return
	}
	f, leads := c.refreshes.Join(k.Key, 0)
	if !leads {
		f.Leave()
		return
	}
	if !c.life.begin() {
		f.Land(outcome[V]{err: ErrClosed})
		return
	}
	f.LeadAsWork()
	p := &pursuit[V]{flight: f, name: name, key: k, load: load, behind: true}
	p.saw(got)
	// A load that reads a stale value does not wait for its refresh, which therefore needs a slot of its own.
	work, cancel := f.Detach(context.WithValue(ctx, chainKey{}, (*link)(nil)), errAbandoned)
	go c.work(work, cancel, f, p)
}

// stepBack has a refresh end that can't be done now, and lands it, unless a caller waits for it by now.
func (c *Cache[V]) stepBack(ctx context.Context, p *pursuit[V]) bool {
	p.behind = false
	if !p.flight.LetGo() && ctx.Err() == nil {
		return false
	}
	p.land(Result[V]{}, cmp.Or(context.Cause(ctx), errAbandoned)) // ErrClosed, or what nobody gets to see
	return true
}
