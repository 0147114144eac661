package cacheguard

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/desk"
)

// chainKey is the context key of the innermost link of a context.
type chainKey struct{}

// link is one load in the chain of loads that led to a context: a load may ask a cache, and the
// load of that cache may ask another cache. The chain shows recursion, and which slots the loads of
// the context already have. A link can also note other facts about a context: see apart and demand.
type link struct {
	cache   any
	keys    []string
	limiter *Limiter
	// The load has returned, so code that still uses its context is no longer inside the load.
	over   atomic.Bool
	job    *desk.Load // nil unless a job (see package desk) may keep the load's slot after the load
	parent *link
	// This link is not a load; work below it does not use the slots of the loads above it.
	apart  bool
	began  uint64  // when the load began, on the flights' clock; 0 if the time doesn't matter
	after  demands // reads must not return a value loaded before these times
	demand bool    // this link is not a load; NotOlderThan set its field after
}

// linkOf returns the innermost link of a context, which may be a demand.
func linkOf(ctx context.Context) *link {
	l, _ := ctx.Value(chainKey{}).(*link)
	return l
}

// chainOf returns a context's innermost link that is not a demand.
func chainOf(ctx context.Context) *link {
	if l := linkOf(ctx); l == nil || !l.demand {
		return l
	} else {
		return l.parent
	}
}

// since returns a moment on the flights' clock. The result of a call with this context must not
// have been read before that moment. Inside a load, the moment is the beginning of the load.
// Outside of loads it is 0.
//
// The reason is that the load's result is stored. Suppose value A is made of value B, both are
// invalidated once, and the message has not reached this process yet. A flight for B that began
// before the load of A may have read B before the change. The lease of the load is from after the
// change. If the load could join that flight, it would store a value made of the old B, and nothing
// would invalidate that value again.
//
// If a load asks for its own key, since returns 0, because the call must join the flight of the key
// to get ErrRecursion. While the store can't be read, since also returns 0: this process can't
// learn of changes then, so loads may share every result. See sinceIfRead.
func (c *Cache[V]) since(ctx context.Context, id string) uint64 {
	if chainOf(ctx) == nil {
		return 0
	}
	if c.reading.is() && !c.inside(ctx, id) && c.opts.Switch.Mode() != ModeOff {
		c.askAgain(ctx, id)
	}
	return c.sinceIfRead(ctx, id)
}

// askAgain reads the store once more, and ends the trouble if the read succeeds.
//
//go:noinline
func (c *Cache[V]) askAgain(ctx context.Context, id string) {
	if _, _, err := c.read(ctx, c.key(id)); err == nil {
		c.up(ctx, &c.reading)
	}
}

// sinceIfRead is since for a call that has just asked the store. Such a call knows whether the
// store can be read.
func (c *Cache[V]) sinceIfRead(ctx context.Context, id string) uint64 {
	l := chainOf(ctx)
	if l == nil || c.reading.is() || c.inside(ctx, id) {
		return 0
	}
	return l.began
}

// outsideSlots returns ctx for work that a load begins and that may outlive the load. This work
// needs its own slot. The chain stays in the context, so that the work can't wait for that load.
func outsideSlots(ctx context.Context) context.Context {
	if chainOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, chainKey{},
		&link{parent: chainOf(ctx), apart: true, after: after(ctx)})
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
// job that has kept the load's slot. In both cases ctx needs no second slot.
func insideLoad(ctx context.Context, limiter *Limiter) bool {
	for l := chainOf(ctx); l != nil && !l.apart; l = l.parent {
		if limiter != nil && l.limiter == limiter && (!l.over.Load() || l.job.Keeps()) {
			return true
		}
	}
	return false
}
