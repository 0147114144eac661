package cacheguard

import (
	"cmp"
	"context"

	"github.com/cacheguard/cacheguard/internal/desk"
)

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
