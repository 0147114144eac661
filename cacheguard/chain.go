package cacheguard

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/cacheguard/cacheguard/internal/desk"
)

// chainKey is the context key of the innermost load that a context belongs to.
type chainKey struct{}

// link is one running load in the chain of loads that led to a context.
type link struct {
	cache   any
	keys    []string
	limiter *Limiter
	over    atomic.Bool // the load has returned: whoever still has its context is no longer inside it
	job     *desk.Load  // what it offers, and its job may keep; nil: nothing
	parent  *link
	apart   bool   // no load, but where the slots of those above no longer count
	began   uint64 // the load, on the flights' clock; 0 if that doesn't matter
	after   int64  // nothing older may be read; 0: there is no such demand
	demand  bool   // no load, but where that was demanded
}

// linkOf is the load that a context belongs to, or what was demanded since.
func linkOf(ctx context.Context) *link {
	l, _ := ctx.Value(chainKey{}).(*link)
	return l
}

// chainOf is the load that a context belongs to.
func chainOf(ctx context.Context) *link {
	if l := linkOf(ctx); l == nil || !l.demand {
		return l
	} else {
		return l.parent
	}
}

// since is the moment before which nothing may have been read that this call returns, on the
// flights' clock: the beginning of the load that it is a part of, 0 if it is none's. What a load
// brings is stored, and may be told to forget what it was made of only once: a flight that began
// before it could have read that before a change of which this process hasn't heard yet, while the
// load, which has its lease from after the change, could store what it makes of it for good.
//
// A load that asks for its own key is told so by the flight that it joins. While the store can't be
// read there are no changes to be heard of, and loads share what they can: see sinceIfRead.
func (c *Cache[V]) since(ctx context.Context, id string) uint64 {
	if chainOf(ctx) == nil {
		return 0
	}
	if c.reading.is() && !c.inside(ctx, id) && c.opts.Switch.Mode() != ModeOff {
		c.askAgain(ctx, id)
	}
	return c.sinceIfRead(ctx, id)
}

// askAgain asks whether the store can be read again.
//
//go:noinline
func (c *Cache[V]) askAgain(ctx context.Context, id string) {
	if _, err := c.read(ctx, c.key(id)); err == nil {
		c.up(ctx, &c.reading)
	}
}

// sinceIfRead is since for who has just asked the store.
func (c *Cache[V]) sinceIfRead(ctx context.Context, id string) uint64 {
	l := chainOf(ctx)
	if l == nil || c.reading.is() || c.inside(ctx, id) {
		return 0
	}
	return l.began
}

// outsideSlots is ctx for work that goes on without the load it was begun in, and so has to have a
// slot of its own; it still must not wait for that load.
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
// job that has kept one.
func insideLoad(ctx context.Context, limiter *Limiter) bool {
	for l := chainOf(ctx); l != nil && !l.apart; l = l.parent {
		if limiter != nil && l.limiter == limiter && (!l.over.Load() || l.job.Keeps()) {
			return true
		}
	}
	return false
}
