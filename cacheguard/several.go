package cacheguard

import (
	"context"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// The value of a key may be for some callers only, and may tell the other callers where their
// values are. Package middleware stores responses that vary in this way.
//
// When a value for some callers only is stale, callers that need another value don't wait for its
// refresh. They must not load the key either, because their load would return a value for
// themselves. So the flight of the look-up lands at once, for all callers, and the callers that the
// value is for share a second flight for the load. If none of these callers comes, the value stays
// until it expires in the store. Then the next caller, of any kind, stores its own value in its
// place.

// isOneOfSeveral reports whether a value is stale, needs a load before it can be served, and is for
// some callers only.
func (got *found[V]) isOneOfSeveral(ctx context.Context) bool {
	return got.good < protocol.Meanwhile && got.res.Status == StatusStale && !got.unshared &&
		desk.Parts(ctx, got.res.Value)
}

// several returns the outcome's stale value if that value is for some callers only. If the outcome
// is for all callers, it returns nil.
func (out *outcome[V]) several() *found[V] {
	if out.also == nil {
		return nil
	}
	return out.also.several
}

// leadSeveral lands the flight of a look-up that has found a value for some callers only, and
// returns the result for the caller that leads the flight.
func (c *Cache[V]) leadSeveral(
	ctx context.Context, of *target[V], got *found[V], res *Result[V],
) error {
	several := *got
	of.flight.Land(outcome[V]{res: several.res, also: &aside[V]{several: &several}})
	return c.ofSeveral(ctx, of.name, of.load, &several, res)
}

// ofSeveral returns the result for one caller of a flight that has landed with a stale value for
// some callers only. If the value is for this caller, the result is the loaded value. Otherwise the
// result is the stale value itself, which tells the caller where its value is.
//
//go:noinline
func (c *Cache[V]) ofSeveral(
	ctx context.Context, key string, load loader[V], got *found[V], res *Result[V],
) (err error) {
	if !desk.MayRefresh(ctx, got.res.Value, false) {
		*res = got.res
		return nil
	}
	call := call[V]{group: parted, stale: got, load: load}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}

// flights are the flights of one process, by group.
type flights[V any] [groups]flight.Group[outcome[V]]

// group is a group of flights. A call joins only flights of its own group.
type group uint8

const (
	reads     group = iota // flights of Get and its variants
	refreshes              // flights of Refresh, and of refreshes in the background
	// If a stored value is for some callers only, these callers share flights of the group parted.
	parted
	// While the Switch is off, all calls use the group direct. While the Switch is in shadow, all
	// calls except Refresh use it. In every mode, loads without the lease for a token or for
	// StrongReads use it (see besideLease).
	direct
	groups
)
