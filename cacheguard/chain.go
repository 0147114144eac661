package cacheguard

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/desk"
)

// chainKey is the context key of the innermost load that a context belongs to.
type chainKey struct{}

// link is one load in the chain of loads that led to a context: a load may ask a cache, whose load
// may ask another cache. The chain shows recursion, and which slots are in hand. A link can also
// note something else about a context: see apart and demand.
type link struct {
	cache   any
	keys    []string
	limiter *Limiter
	over    atomic.Bool // the load has returned, so code that still uses its context is no longer inside it
	job     *desk.Load  // the slot of the load, if a job may keep it after the load; else nil
	parent  *link
	apart   bool   // no load: work below this link does not use the slots of the loads above
	began   uint64 // when the load began, on the flights' clock; 0 if that doesn't matter
	after   int64  // reads must return nothing loaded before this, on the store's clock; 0: no demand
	demand  bool   // no load: NotOlderThan set after here
}

// linkOf returns the innermost link of a context, which may be a demand.
func linkOf(ctx context.Context) *link {
	l, _ := ctx.Value(chainKey{}).(*link)
	return l
}

// chainOf returns the innermost link of a context that is not a demand.
func chainOf(ctx context.Context) *link {
	if l := linkOf(ctx); l == nil || !l.demand {
		return l
	} else {
		return l.parent
	}
}

// since returns the moment, on the flights' clock, before which this call's result must not have
// been read: the beginning of the load in which the call is made, or 0 outside of loads.
//
// The reason is that the load's result is stored. Suppose a value is made of another one, both are
// invalidated once, and the message hasn't arrived here yet. A flight that began before the load
// may have read the other value before the change. If the load, whose lease is from after the
// change, could join that flight, it would store a value made of the old one, and nothing would
// invalidate it again.
//
// A load that asks for its own key returns 0, because it must join the flight of the key to get
// ErrRecursion. While the store can't be read, it returns 0 too: no changes can be learned of then,
// and loads share what they can. See sinceIfRead.
func (c *Cache[V]) since(ctx context.Context, id string) uint64 {
	if chainOf(ctx) == nil {
		return 0
	}
	if c.reading.is() && !c.inside(ctx, id) && c.opts.Switch.Mode() != ModeOff {
		c.askAgain(ctx, id)
	}
	return c.sinceIfRead(ctx, id)
}

// askAgain tries whether the store can be read again.
//
//go:noinline
func (c *Cache[V]) askAgain(ctx context.Context, id string) {
	if _, err := c.read(ctx, c.key(id)); err == nil {
		c.up(ctx, &c.reading)
	}
}

// sinceIfRead is since for a call that has just asked the store, and so knows whether it can be
// read.
func (c *Cache[V]) sinceIfRead(ctx context.Context, id string) uint64 {
	l := chainOf(ctx)
	if l == nil || c.reading.is() || c.inside(ctx, id) {
		return 0
	}
	return l.began
}

// outsideSlots returns ctx for work that may go on after the load in which it was begun has
// returned. Such work needs a slot of its own. The chain stays, so that the work still can't wait
// for that load.
func outsideSlots(ctx context.Context) context.Context {
	if chainOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, chainKey{}, &link{parent: chainOf(ctx), apart: true, after: after(ctx)})
}

// inside reports whether ctx belongs to a running load of this key.
func (c *Cache[V]) inside(ctx context.Context, key string) bool {
	for l := chainOf(ctx); l != nil; l = l.parent {
		if l.cache == any(c) && !l.over.Load() && slices.Contains(l.keys, key) {
			return true
		}
	}
	return false
}

// insideAny reports whether ctx belongs to any running load of this cache.
func (c *Cache[V]) insideAny(ctx context.Context) bool {
	for l := chainOf(ctx); l != nil; l = l.parent {
		if l.cache == any(c) && !l.over.Load() {
			return true
		}
	}
	return false
}

// insideLoad reports whether ctx belongs to a running load that has a slot of this limiter, or to a
// job that has kept the load's slot. Then no second slot is needed.
func insideLoad(ctx context.Context, limiter *Limiter) bool {
	for l := chainOf(ctx); l != nil && !l.apart; l = l.parent {
		if limiter != nil && l.limiter == limiter && (!l.over.Load() || l.job.Keeps()) {
			return true
		}
	}
	return false
}
