package cacheguard

import (
	"context"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// What stands under a key may be one of several values, each for some callers, and say where the
// others find theirs: responses of package middleware that vary. When such a value is stale, those
// it is not for needn't wait for its next version, and mustn't load it either: it would become
// another one. So the flight of the look-up ends with it at once, for all, and those whose it is
// share one more flight for the load. If nobody of those comes, it ends with its time in the store,
// and whoever asks next puts the own one in its place.

// isOneOfSeveral reports whether a value that nobody can be served with at once is for some callers
// only.
func (got *found[V]) isOneOfSeveral(ctx context.Context) bool {
	return got.good < protocol.Meanwhile && got.res.Status == StatusStale && !got.unshared && desk.Parts(ctx, got.res.Value)
}

// several is what a flight has landed with that is stale and for some callers only; nil: its
// outcome is for all.
func (out *outcome[V]) several() *found[V] {
	if out.also == nil {
		return nil
	}
	return out.also.several
}

// ofSeveral is what a caller gets by such a value: what takes its place if it is this caller's,
// else itself.
//
//go:noinline
func (c *Cache[V]) ofSeveral(ctx context.Context, key string, load loader[V], got *found[V], res *Result[V]) (err error) {
	if !desk.MayRefresh(ctx, got.res.Value) {
		*res = got.res
		return nil
	}
	call := call[V]{group: parted, stale: got, load: load}
	for err = c.begin(ctx, key, &call, res); call.flight != nil; err = c.end(ctx, key, &call, res) {
		call.flight.Await(ctx.Done())
	}
	return err
}

// flights are those of one process, by group.
type flights[V any] [groups]flight.Group[outcome[V]]

// group is one of them: flights of different groups don't meet.
type group uint8

const (
	reads     group = iota // of Get and its kin
	refreshes              // of Refresh, and of what reads refresh behind their callers' backs
	parted                 // of reads of values that are one of several, by those they are for
	direct                 // of all of those while a Switch has them answered by loads of this process only
	groups
)
