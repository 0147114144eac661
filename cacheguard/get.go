package cacheguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cacheguard/cacheguard/internal/desk"
	"github.com/cacheguard/cacheguard/internal/flight"
	"github.com/cacheguard/cacheguard/internal/protocol"
)

// Get returns the value of key: from the store, or from load, run once for all who ask at the same time in the whole
// fleet. ctx bounds this caller only: when it ends, Get returns its error at once, or within the store's operation
// timeout if it is just being read; the load goes on for others who wait, and is cancelled when the last one has left.
//
// It returns ErrNotFound if the origin has no such thing, the load's error (*LoadError if the load ran in another
// process, *PanicError if it panicked), ErrOverloaded, ErrClosed, ErrRecursion, and ErrUnavailable if the store can't
// be used and the cache fails closed; otherwise trouble with the store is not the caller's error.
func (c *Cache[V]) Get(ctx context.Context, key string, load LoadFunc[V]) (V, error) {
	if c.plain && load != nil && c.enter(ctx) == nil { // get would find the same, and spend half of its time on a Result
		if e, _ := c.tier.fresh(keyID(key)); e != nil && chainOf(ctx) == nil {
			if c.localHits != nil {
				c.localHits.add(e.res.NotFound)
			}
			if e.res.NotFound {
				return e.res.Value, ErrNotFound
			}
			return e.res.Value, nil
		}
	}
	if load == nil {
		var zero V
		return zero, errNoLoad
	}
	var res Result[V]
	err := c.get(ctx, key, loader[V]{value: load}, &res)
	return res.Value, err
}

var errNoLoad = errors.New("cacheguard: the load function is nil")

// GetResult is Get that says how the value was found.
func (c *Cache[V]) GetResult(ctx context.Context, key string, load LoadFunc[V]) (res Result[V], err error) {
	if load == nil {
		return res, errNoLoad
	}
	err = c.get(ctx, key, loader[V]{value: load}, &res)
	return res, err
}

// GetEntry is GetResult for a load that decides how long its result is kept, and whether.
func (c *Cache[V]) GetEntry(ctx context.Context, key string, load EntryFunc[V]) (res Result[V], err error) {
	if load == nil {
		return res, errNoLoad
	}
	err = c.get(ctx, key, loader[V]{entry: load}, &res)
	return res, err
}

// get is the read path: look into the process-local tier; join the key's flight; its leader looks the value up; if it
// is fresh, return it; if it is stale but good enough for now, return it and refresh it behind the caller's back; else
// pursue it by lease and load, or by waiting for who has them, until somebody has the result for all. What it finds it
// writes into res.
//
// Thousands of goroutines wait in await at the same time, each on a stack that has to grow for what is on it. So while they
// wait there is nothing of look on theirs, and results are not copied from function to function.
func (c *Cache[V]) get(ctx context.Context, key string, load loader[V], res *Result[V]) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	id := keyID(key)
	since := c.since(ctx, id)
	if c.tier.values != nil {
		if since == 0 {
			if found, err := c.getLocal(ctx, key, id, load, res); found {
				return err
			}
		}
		c.store.Listening() // without messages the tier is of no use
	}
	f, err := c.takePart(ctx, &c.reads, key, id, load, since, res)
	if f == nil {
		return err
	}
	return c.look(ctx, f, key, c.key(id), load, res)
}

// getLocal answers from the process-local tier, if it can.
func (c *Cache[V]) getLocal(ctx context.Context, key, id string, load loader[V], res *Result[V]) (found bool, err error) {
	var e *kept[V]
	if *res, e = c.tier.get(id); e == nil {
		return false, nil
	}
	if got, early := e.early(*res, c.opts.EarlyRefresh); early {
		c.refreshBehind(ctx, key, c.key(id), load, got)
	}
	return true, c.answer(ctx, key, res)
}

// look is the read path of the caller that leads the flight. The look-up runs on its own goroutine: a hit costs no other.
//
//go:noinline
func (c *Cache[V]) look(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key, load loader[V], res *Result[V]) error {
	got, err := c.lookUp(ctx, f, key, k)
	if got.passing && err == nil { // who gets the lease may find something to be shared, the others don't wait for that
		marker := got
		f.Land(outcome[V]{also: &aside[V]{unshared: true, marker: &marker}})
		m := c.missOf(key, k, load, got, nil)
		m.Solo = true
		return c.detach(ctx, flight.Solo[outcome[V]](), m, res)
	}
	if err == nil && got.isOneOfSeveral(ctx) {
		stale := got
		f.Land(outcome[V]{res: got.res, also: &aside[V]{several: &stale}})
		return c.ofSeveral(ctx, key, k.Key, load, &stale, res)
	}
	return c.pursue(ctx, f, key, k, load, got, err, res)
}

// pursue is the way of a flight's leader from what a look-up has found.
func (c *Cache[V]) pursue(ctx context.Context, f *flight.Flight[outcome[V]], key string, k Key, load loader[V], got found[V], err error,
	res *Result[V]) error {
	switch kind, failed, behind := c.atOnce(k.Key, &got, err); kind {
	case EventHit, EventStale:
		got.res.Err = failed
		f.Land(outcome[V]{res: got.res})
		if behind {
			c.refreshBehind(ctx, key, k, load, got)
		}
		*res = got.res
		return c.answer(ctx, key, res)
	case EventCoalesced, EventOverloaded:
		if kind == EventCoalesced {
			res.Status = StatusCoalesced
		}
		f.Land(outcome[V]{res: *res, err: failed})
		c.observe(ctx, Event{Kind: kind, Key: key, Err: failed})
		return failed
	}
	if got.servable() && err == nil && c.opts.SoftTimeout > 0 {
		f.Hold()
		f.Offer(outcome[V]{res: got.res, also: &aside[V]{at: time.Now()}}, time.Now().Add(got.keeps))
		ctx = outsideSlots(ctx) // a load that reads this waits for SoftTimeout at most, and the work goes on without it
	}
	m := c.missOf(key, k, load, got, err)
	m.Reads = true
	return c.detach(ctx, f, m, res)
}

// atOnce says what a caller is told who waits for no load: a fresh value; a stale one, where that will do or because a load has
// failed; the error of a load that has just failed in this process; that too many ask the store, which is no reason to ask the
// origin. Zero: there is a load to be had. behind: the value is to be refreshed meanwhile.
func (c *Cache[V]) atOnce(id string, got *found[V], storeErr error) (kind EventKind, failed error, behind bool) {
	switch {
	case got.good == protocol.Fresh:
		return EventHit, nil, got.early
	case got.servable() && storeErr == nil:
		held, failed := c.refreshPauses.Find(id, got.id)
		if failed != nil || got.good == protocol.Meanwhile && c.opts.SoftTimeout == 0 {
			return EventStale, failed, !held
		}
	case !got.servable() && errors.Is(storeErr, ErrOverloaded):
		return EventOverloaded, storeErr, false
	case storeErr == nil:
		if failed := c.failures.Recent(id); failed != nil && c.store.Listening() {
			return EventCoalesced, failed, false
		}
	}
	return 0, nil, false
}

// takePart makes the caller a member of a flight of this group, and returns it if the caller is to lead it. If not, it waits for
// it and returns in res what the caller gets of it.
//
// With StrongReads it may do so twice. A flight's result is as of the moment before the question to the store that it comes
// from, or before its load began. For who joined the flight later than that, it may be what was so before a change that had
// returned when this caller came, of which its process hasn't heard yet. Such a caller waits all the same, so that a burst
// doesn't become as many look-ups, and then takes another one: all who come while one is out share the next.
func (c *Cache[V]) takePart(ctx context.Context, group *flight.Group[outcome[V]], key, id string, load loader[V], since uint64,
	res *Result[V]) (leads *flight.Flight[outcome[V]], err error) {
	came := flight.Now()
	f, first := group.JoinSince(id, c.opts.MaxWaiters, since)
	for asked := false; ; asked = true {
		if f == nil {
			return nil, c.turnAway(ctx, key, id)
		}
		if first {
			return f, nil
		}
		out, began, err := c.await(ctx, f, key, id)
		if err != nil {
			return nil, err
		}
		if asked || !c.opts.StrongReads || !c.tooOld(out, f, came) {
			return nil, c.shared(ctx, f, key, id, load, out, began, res)
		}
		// What the next one brings was found after it was begun, which was after this call.
		f, first = group.JoinNext(f, came)
	}
}

// tooOld reports whether what a flight has brought may be from before a change that had returned at that moment. Errors are
// none's values, and while the store can't be read there are no changes to be heard of.
func (c *Cache[V]) tooOld(out *outcome[V], f *flight.Flight[outcome[V]], came uint64) bool {
	if out.err != nil || out.unshared() || out.res.Degraded && c.reading.said.Load() {
		return false
	}
	return !f.Since(came)
}

// await waits for a flight that another caller leads, and returns what it has landed with and since when it was waited for
// that, if somebody is to be told.
func (c *Cache[V]) await(ctx context.Context, f *flight.Flight[outcome[V]], key, id string) (out *outcome[V], began time.Time, err error) {
	if c.inside(ctx, id) { // the flight may be waiting for this very load
		f.Leave()
		return nil, began, recursion(key)
	}
	c.urge(ctx, f)
	began = c.watch(f)
	if c.opts.SoftTimeout > 0 {
		out, err = c.resultWithin(ctx, f, c.opts.SoftTimeout)
	} else if d := desk.From(ctx); d != nil && d.Caller != nil {
		out, err = desk.Hear(ctx, d, f)
	} else {
		out, err = f.Result(ctx)
	}
	return out, began, err
}

// resultWithin waits for a flight to land, for so long at most if there is a stale value to be had.
func (c *Cache[V]) resultWithin(ctx context.Context, f *flight.Flight[outcome[V]], patience time.Duration) (*outcome[V], error) {
	out, early, err := f.WaitAtMost(ctx, patience)
	if early {
		out.res = out.res.later(time.Since(out.also.at))
	}
	return &out, err
}

// shared is what a caller gets of a flight that another one leads, when it has landed.
func (c *Cache[V]) shared(ctx context.Context, f *flight.Flight[outcome[V]], key, id string, load loader[V], out *outcome[V],
	began time.Time, res *Result[V]) (err error) {
	if out.unshared() {
		return c.loadUnshared(ctx, key, id, load, out.also.marker, res)
	}
	if several := out.several(); several != nil {
		return c.ofSeveral(ctx, key, id, load, several, res)
	}
	*res = out.res
	switch res.Status {
	case StatusHit:
		return c.answer(ctx, key, res)
	case StatusLoaded:
		res.Status = StatusCoalesced
	}
	if c.opts.Observer != nil {
		c.served(ctx, EventCoalesced, key, f, out, began)
	}
	return res.answer(out.err)
}

// urge has a flight's work do without a slot if a load waits for it with one in hand, perhaps the one it needs. With
// something else to be had, that load won't wait for long.
func (c *Cache[V]) urge(ctx context.Context, f *flight.Flight[outcome[V]]) {
	if insideLoad(ctx, c.opts.Limiter) && !f.Offers() {
		f.Urge()
	}
}

// answer answers with a value that was at hand, fresh or stale.
func (c *Cache[V]) answer(ctx context.Context, key string, res *Result[V]) error {
	switch {
	case res.Status == StatusStale:
		c.observe(ctx, Event{Kind: EventStale, Key: key, NotFound: res.NotFound, Err: res.Err})
	case res.Local && c.localHits != nil:
		c.localHits.add(res.NotFound)
	default:
		c.observe(ctx, Event{Kind: EventHit, Key: key, NotFound: res.NotFound, Local: res.Local})
	}
	return res.answer(nil)
}

// answer is the error that goes with a result: "does not exist" is one for callers.
func (r *Result[V]) answer(err error) error {
	if err == nil && r.NotFound {
		err = ErrNotFound
	}
	return err
}

func (c *Cache[V]) missed(ctx context.Context, key string, got found[V]) {
	c.observe(ctx, Event{Kind: EventMiss, Key: key})
	if got.corrupt == nil {
		return
	}
	c.observe(ctx, Event{Kind: EventCorrupt, Key: key, Err: got.corrupt})
	if c.corruptSaid.CompareAndSwap(false, true) { // once: a million of them would be a million lines
		c.opts.Logger.WarnContext(ctx, "cacheguard: store has something that is no value; it counts as a miss and is overwritten",
			"cache", c.opts.Name, "key", quoteKey(key), "error", got.corrupt)
	}
}

func (c *Cache[V]) turnAway(ctx context.Context, key, id string) error {
	if c.inside(ctx, id) {
		return recursion(key)
	}
	err := fmt.Errorf("%w: %d callers wait for %s already", ErrOverloaded, c.opts.MaxWaiters, quoteKey(key))
	c.observe(ctx, Event{Kind: EventOverloaded, Key: key, Err: err})
	return err
}

func recursion(key string) error { return fmt.Errorf("%w: %s", ErrRecursion, quoteKey(key)) }
